"""Hard negatives: the nearest wrong phrase, and batches that hold it."""

from __future__ import annotations

import numpy as np
import pytest

from finetune import neighbours
from finetune.ccpr import Trainer
from finetune.ccpr_config import read_config
from finetune.neighbours import Neighbours, nearest_wrong
from finetune.phrase_batches import PhrasePool
from rag_mt.errors import UserError
from tests.finetune.test_ccpr import CONFIG


@pytest.fixture
def config(tmp_path, tiny_encoder):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.format(encoder=tiny_encoder))
    return path


def test_the_nearest_wrong_phrase_says_something_else_in_another_row():
    east, north, between = [1.0, 0.0], [0.0, 1.0], [0.8, 0.6]
    # Row 0 says "a" (east); row 1 says "a" too; row 2 says "b" nearby; row 3 says "c" (north).
    source = np.array([east, east, between, north], np.float32)
    target = np.array([east, east, between, north], np.float32)
    owner = np.array([0, 1, 2, 3])
    surface = np.array([10, 10, 11, 12])
    found = nearest_wrong(source, target, owner, surface, rows=6)
    assert found[[0, 1, 3, 4, 5]].tolist() == [2, 2, 2, -1, -1]
    assert found[2] in (0, 1)  # they say the same


def test_a_row_has_the_neighbour_of_its_most_confused_phrase():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.99, 0.1]], np.float32)
    owner, surface = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 4])
    assert nearest_wrong(vectors, vectors, owner, surface, rows=3).tolist() == [2, 0, 0]


def test_training_with_neighbours_of_a_trained_model(tmp_path, config, pairs, capsys):
    trainer = Trainer(read_config(config), pairs, tmp_path / "m", "cpu")
    trainer.run_step()
    trainer.save()
    output = tmp_path / "n.npz"
    arguments = ["--config", str(config), "--pairs", str(pairs), "--model", str(tmp_path / "m"), "--rows", "50"]
    assert neighbours.main([*arguments, "--output", str(output), "--device", "cpu", "--dtype", "float32"]) == 0
    assert "of 50 sentence pairs have a neighbour" in capsys.readouterr().err
    changes = {"data.neighbours": str(output), "model.start": str(tmp_path / "m")}
    further = Trainer(read_config(config, changes), pairs, tmp_path / "f", "cpu")
    found = Neighbours(output, further.pool)
    for step in range(3):
        seeds = further.batches[step].tolist()
        assert len(seeds) == 4
        assert further.rows_of(step) == further.pool.rows([*seeds, *found.of(seeds)])
        further.run_step()
    assert further.key != trainer.key


def test_neighbours_of_other_pairs_are_refused(tmp_path, pairs):
    pool = PhrasePool([pairs / "xa-en"])
    np.savez(tmp_path / "n.npz", neighbours=np.zeros(3, np.int64), pool=np.array("other"))
    with pytest.raises(UserError, match="made for other phrase pairs: make it anew"):
        Neighbours(tmp_path / "n.npz", pool)
    (tmp_path / "bad.npz").write_text("no archive")
    with pytest.raises(UserError, match="holds no neighbours"):
        Neighbours(tmp_path / "bad.npz", pool)
