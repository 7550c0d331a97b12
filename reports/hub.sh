#!/bin/bash
# The papers' rows with their own models and data, which need a model hub, GPUs and files that no package has:
#
#   bash reports/hub.sh DATA WORK [STEP ...]
#
# WORK is that of reports/papers.sh, after its steps `pairs` and `indexes`. DATA holds, beside what that needs:
#   newscrawl/XX.txt          News Crawl 2016 of en de cs fi ro ru tr
#   baselines/XX.tsv          of bert-score's rescale_baseline, en of roberta-large, de cs fi of bert-base-multilingual-cased
#   wikixpr/                  as its authors published it
#   wikimatrix/train/XX-en.tsv  of the languages of WikiXPR and Mr. TyDi, 100,000 pairs or more of each
#   nq/biencoder-nq-{train,dev}.json.gz, msmarco/{train,dev}/, bucc/
#   mrtydi/XX/, collections/XX/  passages.tsv, queries.tsv and qrels of one language; all passages of a collection are held
#                             in memory, so give those that are judged and as many others as there is room for
# Steps: phrases translation comet xpr passages bitext documents (default: all), `bitext` and `documents` after
# `passages`. Started again it goes on. CCPR's batch is 64 for each of GPUS (default: 8) processes. `comet` needs what
# `make comet` installs.
set -euo pipefail
. "$(dirname "$0")/steps.sh"
xlmr=FacebookAI/xlm-roberta-base
labse=sentence-transformers/LaBSE
mbert=bert-base-multilingual-cased
turkish=dbmdz/bert-base-turkish-cased
launch() { module accelerate.commands.launch --num_processes "${GPUS:-8}" -m "$@"; }

# adapter NAME METHOD INDEX: Llama-2 tuned on 300 pairs of each language, one adapter for each group of directions
adapter() {
  local group l indexes
  for group in to-en from-en; do
    indexes=()
    for l in $([ "$group" = to-en ] && echo en || echo "$languages"); do
      [ -z "$3" ] || indexes+=(--index "$l=indexes/$3.$l")
    done
    once "examples.$1.$group" module finetune.lora.data --config lora-llama2 --data "$data" --group "$group" \
      --method "$2" "${indexes[@]}" --output "examples/$1.$group.jsonl"
    once "adapters.$1.$group" launch finetune.lora --config lora-llama2 --examples "examples/$1.$group.jsonl" \
      --output "adapters/$1.$group"
  done
}
# scored RUNS SYSTEMS DIRECTIONS MODEL LAYER: BERTScore by the model that bert-score takes for the language, rescaled where
# it has a baseline of that model: not for ru, ro and tr, as the paper's numbers have it, too
scored() {
  module eval.translation --suite wmt16 --data "$data" --config hub.toml --systems "$2" --directions "$3" --output "$1" \
    --metrics bleu,chrf,chrf++,bertscore --bertscore-model "$4" --bertscore-layer "$5" --bertscore-baselines "$data/baselines"
}
systems=llama,sentence-xlmr,sentence-labse,ccpr-xlmr,ccpr-labse
to_en=de-en,cs-en,fi-en,ru-en,ro-en,tr-en from_en=en-de,en-cs,en-fi,en-ru,en-ro
# xpr FOLDER LANGUAGES [OPTION ...]: a training with the paper's settings on pairs of the languages, a list as in TOML
xpr() {
  once "$1" module finetune.xpr --config xpr-paper --phrases WIKIXPR --output "$1" --set "data.languages=$2" "${@:3}"
}
wikixpr="zh ar de es fr ja ko ru" # zero-shot transfer begins with the first one
tydi=ar,bn,fi,id,ja,ko,ru,sw,te,th
# kinds NAME ...: the folders of runs with their three seeds, for --model
kinds() { for k in "$@"; do echo "$k=TRUNS/$k.seed1,TRUNS/$k.seed2,TRUNS/$k.seed3"; done; }
# asked FOLDER LANGUAGE [OPTION ...]: the passages of a folder of DATA
asked() {
  module eval.passages --passages "$data/$1/passages.tsv" --queries "$data/$1/queries.tsv" --qrels "$data/$1/qrels" \
    --lang "$2" --output "${1//\//.}" --report "${1//\//.}.md" "${@:3}"
}
# stage NAME PREPARED RELEVANCE [OPTION ...]: an mBERT for documents, by the loss of retrieval alone. The paper tells neither
# steps nor batches of its stages; these are as long as the first paper's.
stage() {
  once "$1" module finetune.mdpr --config mdpr-paper --prepared "$2" --output "$1" --set "data.relevance=$3" \
    --set "model.encoder=$mbert" --set data.pairs=[] --set training.batch=48 --set training.dev_queries=1000 \
    --set training.semantic_weight=0 --set training.language_weight=0 "${@:4}"
}

for step in ${*:-phrases translation comet xpr passages bitext documents}; do
  case $step in
    phrases) # CCPR, table 1
      for m in xlmr labse; do
        once "cpr-$m" launch finetune.ccpr --config "ccpr-$m" --pairs PAIRS --output "cpr-$m" --set data.other_contexts=true
        once "ccpr-$m" launch finetune.ccpr --config "ccpr-$m" --pairs PAIRS --output "ccpr-$m"
        once "thresholds-$m" as_the_paper "ccpr-$m"
      done
      once table1.md module eval.phrases --suite gold --data "$data" --pairs PAIRS --index indexes/ccpr.en \
        --distractors 1010000 --queries 1000 --output table1.md --model "untrained:$xlmr@12" \
        "untrained:$mbert@12" "untrained:$labse@12" cpr-xlmr cpr-labse ccpr-xlmr ccpr-labse
      ;;
    translation) # CCPR, tables 2 to 4, BERTScore
      once ngrams-labse copied ccpr-labse ngrams-labse
      once ngrams-labse.json by_ngrams ngrams-labse
      for l in en $languages; do
        for m in xlmr labse; do
          built "sentence-$m.$l" "$data/newscrawl/$l.txt" "$l" sentence --no-split --encoder "${!m}"
          built "ccpr-$m.$l" "$data/newscrawl/$l.txt" "$l" ccpr --no-split --encoder "ccpr-$m"
        done
      done
      for m in xlmr labse; do calibrated "ccpr-$m" 500 --drop 0.25 --encoder "ccpr-$m"; done
      adapter llama plain ""
      for m in xlmr labse; do
        adapter "sentence-$m" sentence "sentence-$m"
        adapter "ccpr-$m" phrase "ccpr-$m"
      done
      cp "$here/hub.toml" hub.toml
      scored HUB "$systems" "$to_en" roberta-large 17
      scored HUB "$systems" "$from_en" "$mbert" 9
      scored HUB "$systems" en-tr "$turkish" 10
      for l in ro cs tr; do
        text training "$l" --domains "$all"
        for m in xlmr labse; do
          built "training-$m.$l" "training.$l.txt" "$l" ccpr --encoder "ccpr-$m"
          calibrated_for "training-$m" "$l" 500 --drop 0.25 --encoder "ccpr-$m"
        done
        built "ngrams-labse.$l" "$data/newscrawl/$l.txt" "$l" ccpr --no-split --encoder ngrams-labse
        calibrated_for ngrams-labse "$l" 500 --drop 0.25 --encoder ngrams-labse
      done
      variants=ccpr-xlmr,ccpr-labse,training-xlmr,training-labse,ngrams-labse
      scored HUB34 "$variants" en-ro,en-cs "$mbert" 9
      scored HUB34 "$variants" en-tr "$turkish" 10
      ;;
    comet) # CCPR, appendix
      once comet.json module eval.comet.score HUB --model Unbabel/wmt22-comet-da --output comet.json
      module eval.translation --suite wmt16 --data "$data" --config hub.toml --systems "$systems" --output HUB \
        --directions "$to_en,$from_en,en-tr" --score-only --metrics comet --comet comet.json
      ;;
    xpr) # tables 2 to 7 and figure 2
      once WIKIXPR module finetune.xpr.data --wikixpr "$data/wikixpr" --output WIKIXPR \
        --pairs "${wikixpr// /-en,}-en" --report wikixpr.md
      for l in $wikixpr; do
        xpr "XMODELS/supervised.$l-en" "[\"$l-en\"]"
        for s in 2 3; do xpr "XMODELS/seed.$s.$l-en" "[\"$l-en\"]" --set "training.seed=$s"; done
      done
      xpr XMODELS/multilingual "[\"${wikixpr// /-en\",\"}-en\"]"
      for l in zh fr ko ru; do
        xpr "XMODELS/ablation.sentences.$l-en" "[\"$l-en\"]" --set data.sentences=0
        xpr "XMODELS/ablation.momentum.$l-en" "[\"$l-en\"]" --set training.momentum=0
        xpr "XMODELS/ablation.head.$l-en" "[\"$l-en\"]" --set model.head=false
        xpr "XMODELS/ablation.queue.$l-en" "[\"$l-en\"]" --set training.queue=1024
      done
      for n in 4 6 8 10 12; do xpr "XMODELS/layer.$n.fr-en" '["fr-en"]' --set "model.layer=$n"; done
      for n in 1 2 4 8 16 32; do
        xpr "XMODELS$n/supervised.fr-en" '["fr-en"]' --set "data.sentences=$n"
        once "examples-$n.json" module eval.phrases --suite xpr --phrases WIKIXPR --languages fr --models "XMODELS$n" \
          --runs "XRUNS$n" --encoder "$xlmr" --parts examples --output "examples-$n.json" "examples-$n.md"
      done
      once wikixpr.json module eval.phrases --suite xpr --data "$data/wikimatrix" --phrases WIKIXPR --languages "${wikixpr// /,}" --models XMODELS \
        --runs XRUNS --encoder "$xlmr" --examples 32 --output wikixpr.json wikixpr-tables.md
      ;;
    passages) # mDPR, first paper, tables 2 to 5 and 7 to 10, figures 3 and 4
      once TYDI module finetune.mdpr.data --data "$data/wikimatrix" --output TYDI --languages "$tydi" --connections fi-ko,ja-ko,fi-ja \
        --pairs 50000 --texts 50000 --relevance "nq=dpr:$data/nq/biencoder-nq-train.json.gz" \
        --dev "en=dpr:$data/nq/biencoder-nq-dev.json.gz"
      for l in ru sw te th; do cut -f 2 "$data/mrtydi/$l/passages.tsv" > "TYDI/texts/mrtydi-$l.txt"; done
      module finetune.mdpr.runs --plan "$here/mrtydi.toml" --prepared TYDI --output TRUNS \
        --set training.batch=48 --set training.pair_batch=48 --set training.text_batch=48
      # shellcheck disable=SC2046
      for l in en ${tydi//,/ }; do
        once "mrtydi.$l" asked "mrtydi/$l" "$l" --model $(kinds ir sema lang both infoxlm-ir infoxlm-sema labse-ir labse-sema part-sema part-lang part-lang-domain \
          part-both part-both-domain setting-{1,2,3,4,5} pairs-{500,5000} texts-{0,10000})
      done
      ;;
    bitext) # mDPR, first paper, table 6
      once bucc.md module eval.bitext --sets "$data/bucc" --languages de,fr,ru,zh --output bucc.md --models "$xlmr" \
        TRUNS/sema.seed1 microsoft/infoxlm-base TRUNS/infoxlm-sema.seed1 "$labse" TRUNS/labse-sema.seed1
      ;;
    documents) # mDPR, second paper
      stage nq TYDI '["nq"]'
      once MSMARCO module finetune.mdpr.data --data "$data" --output MSMARCO --relevance "msmarco=trec:$data/msmarco/train" \
        --dev "en=trec:$data/msmarco/dev"
      stage msmarco MSMARCO '["msmarco"]'
      for m in generated titles; do
        sets=""
        for l in zh ar fr hi bn es; do
          once "queries.$l.$m" module finetune.mdpr.queries --language "$l" --method "$m" --prepared MSMARCO \
            --documents "hf:wikimedia/wikipedia/20231101.$l"
          sets+="\"$m-$l\","
        done
        stage "$m" MSMARCO "[${sets%,}]" --set model.start=msmarco
      done
      for l in zh ar fr hi bn es; do
        once "documents.$l" asked "collections/$l" "$l" --model nq=nq msmarco=msmarco generated=generated titles=titles
      done
      ;;
    *) no_step "$step" ;;
  esac
done
