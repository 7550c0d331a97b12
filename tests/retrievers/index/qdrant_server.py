"""A stand-in for a Qdrant server: its gRPC services as the client describes them, answered by the client's local mode
with vectors in fp16, and with faults on demand."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from qdrant_client import QdrantClient
from qdrant_client import grpc as services
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

WRITTEN = services.PointsOperationResponse(result=services.UpdateResult(status=services.UpdateStatus.Completed))


def _sent(records: Any) -> list[Any]:
    """Records as they are sent."""
    for record in records:
        record.payload = record.payload or {}
    return [RestToGrpc.convert_record(record) for record in records]


class Server:
    """What the services share: its version, the points, the requests by name, and how often the next call fails, and
    how."""

    def __init__(self) -> None:
        self.version = "1.20.0"
        self.client = QdrantClient(":memory:")
        self.requests: list[tuple[str, Any]] = []
        self.faults: list[grpc.StatusCode] = []

    def answer(self, name: str, request: Any, context: Any) -> Any:
        self.requests.append((name, request))
        if self.faults:
            context.abort(self.faults.pop(0), "planned by the test")
        try:
            return getattr(self, name)(request)
        except ValueError as error:
            code = grpc.StatusCode.NOT_FOUND if "not found" in str(error) else grpc.StatusCode.INVALID_ARGUMENT
            context.abort(code, str(error))

    def HealthCheck(self, request: Any) -> Any:  # noqa: N802
        return services.HealthCheckReply(title="a stand-in", version=self.version)

    def List(self, request: Any) -> Any:  # noqa: N802
        found = self.client.get_collections().collections
        names = [RestToGrpc.convert_collection_description(entry) for entry in found]
        return services.ListCollectionsResponse(collections=names)

    def Get(self, request: Any) -> Any:  # noqa: N802
        if isinstance(request, services.GetCollectionInfoRequest):
            info = self.client.get_collection(request.collection_name)
            info.payload_schema = {}
            return services.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(info))
        ids = [GrpcToRest.convert_point_id(id) for id in request.ids]
        payload, vectors = self._wanted(request)
        records = self.client.retrieve(request.collection_name, ids, with_payload=payload, with_vectors=vectors)
        return services.GetResponse(result=_sent(records))

    def CollectionExists(self, request: Any) -> Any:  # noqa: N802
        exists = self.client.collection_exists(request.collection_name)
        return services.CollectionExistsResponse(result=services.CollectionExists(exists=exists))

    def Create(self, request: Any) -> Any:  # noqa: N802
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config)
        return self._done(self.client.create_collection(request.collection_name, vectors_config=vectors))

    def Delete(self, request: Any) -> Any:  # noqa: N802
        if isinstance(request, services.DeleteCollection):
            return self._done(self.client.delete_collection(request.collection_name))
        self.client.delete(
            request.collection_name, [GrpcToRest.convert_point_id(id) for id in request.points.points.ids]
        )
        return WRITTEN

    def UpdateAliases(self, request: Any) -> Any:  # noqa: N802
        steps = [GrpcToRest.convert_alias_operations(step) for step in request.actions]
        return self._done(self.client.update_collection_aliases(steps))

    def ListAliases(self, request: Any) -> Any:  # noqa: N802
        found = self.client.get_aliases().aliases
        return services.ListAliasesResponse(aliases=[RestToGrpc.convert_alias_description(alias) for alias in found])

    def Upsert(self, request: Any) -> Any:  # noqa: N802
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        for point in points:
            halves = {name: np.array(row, np.float16) for name, row in (point.vector or {}).items()}
            point.vector = {name: row.astype(np.float32).tolist() for name, row in halves.items()}
        only = GrpcToRest.convert_filter(request.update_filter) if request.HasField("update_filter") else None
        self.client.upsert(request.collection_name, points, update_filter=only)
        return WRITTEN

    def CreateFieldIndex(self, request: Any) -> Any:  # noqa: N802
        return WRITTEN

    def Count(self, request: Any) -> Any:  # noqa: N802
        where = GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None
        count = self.client.count(request.collection_name, where).count
        return services.CountResponse(result=services.CountResult(count=count))

    def Scroll(self, request: Any) -> Any:  # noqa: N802
        offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
        where = GrpcToRest.convert_filter(request.filter)
        points, following = self.client.scroll(request.collection_name, where, request.limit, offset=offset)
        more = None if following is None else RestToGrpc.convert_extended_point_id(following)
        return services.ScrollResponse(result=_sent(points), next_page_offset=more)

    def QueryBatch(self, request: Any) -> Any:  # noqa: N802
        queries = [GrpcToRest.convert_query_points(query) for query in request.query_points]
        for query in queries:
            query.params = None
        answers = self.client.query_batch_points(request.collection_name, queries)
        batches = [[RestToGrpc.convert_scored_point(point) for point in answer.points] for answer in answers]
        return services.QueryBatchResponse(result=[services.BatchResult(result=batch) for batch in batches])

    def _wanted(self, request: Any) -> tuple[Any, Any]:
        vectors = GrpcToRest.convert_with_vectors_selector(request.with_vectors)
        return GrpcToRest.convert_with_payload_selector(request.with_payload), vectors

    def _done(self, result: bool) -> Any:
        return services.CollectionOperationResponse(result=result)


def _servicer(base: Any, server: Server) -> Any:
    """A service whose requests the server answers."""
    names = [name for name in vars(base) if hasattr(server, name) and not name.startswith("_")]
    calls = {n: lambda self, request, context, n=n: server.answer(n, request, context) for n in names}
    return type(base.__name__, (base,), calls)()


@contextmanager
def running(port: int) -> Iterator[Server]:
    """A server whose gRPC is at that port."""
    server, listener = Server(), grpc.server(ThreadPoolExecutor(4))
    services.add_CollectionsServicer_to_server(_servicer(services.CollectionsServicer, server), listener)
    services.add_PointsServicer_to_server(_servicer(services.PointsServicer, server), listener)
    services.add_QdrantServicer_to_server(_servicer(services.QdrantServicer, server), listener)
    listener.add_insecure_port(f"127.0.0.1:{port}")
    listener.start()
    try:
        yield server
    finally:
        listener.stop(None).wait()
