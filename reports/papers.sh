#!/bin/bash
# The runs of reports/plan.md, in its order:
#
#   bash reports/papers.sh DATA WORK [STEP ...]
#
# DATA is the folder of parallel text that reports/README.md describes, with lexicon/ in it; everything is made under
# WORK. Steps: mining pairs indexes directions inference ccpr losses names mono left-out seeds vectors queries lift queue
# sizes multilingual qwen (default: all, which takes about 33 hours of two cores). Started again it goes on: finished
# commands are left, a training or evaluation that was stopped goes on from where it was. PYTHON (default: python) is the interpreter.
set -euo pipefail
. "$(dirname "$0")/steps.sh"
metrics=bleu,chrf,chrf++,bertscore
# translated RUNS SYSTEMS LIMIT [OPTION ...]: what is there is not translated again
translated() {
  module eval.translation --suite wmt16 --data "$data" --systems "$2" --limit "$3" --output "$1" "${@:4}"
}
ccpr() { once "$1" module finetune.ccpr --config ccpr-embedded --set data.rewritten=0 --pairs PAIRS --output "$1" "${@:2}"; }
mdpr() {
  module finetune.mdpr.runs --prepared PREPARED --output R --groups "$1" "${@:2}" --set training.steps=300 \
    --set model.shared=false --set training.dtype=auto --set training.evaluate_every=300 --set training.checkpoint_every=50
}
# xpr FOLDER [OPTION ...]: a training on names of several words; German and 100 epochs unless options say otherwise
xpr() {
  once "$1" module finetune.xpr --config xpr-embedded --phrases NAMED --output "$1" --set 'data.languages=["de-en"]' \
    --set training.batch=256 --set training.cached=true --set training.chunks=32 --set training.steps=0 \
    --set training.epochs=100 "${@:2}"
}
names() {
  once "$1.json" module eval.phrases --suite xpr --phrases NAMED --data "$data" --languages de --examples 32 --output "$1.json" "$1.md" "${@:2}"
}
gold_phrases() {
  once "$1.json" module eval.phrases --suite gold --data "$data" --pairs PAIRS --index indexes/ccpr.en --distractors 1010000 \
    --queries 1000 --output "$1.json" "$1.md" "${@:2}"
}
asked() { module eval.passages --suite xquad --data "$data" --distractors 200 "$@"; }
passages() { asked --part test --output PRUNS "$@"; }
# The shipped phrase model with the thresholds of the paper, and with n-grams of up to four words; no confidence model.
phrase_models() {
  local shipped name
  shipped=$("$python" -c 'from rag_mt.models.weights import FOLDER; print(FOLDER)')/ccpr-e5-small
  for name in ccpr-paper ccpr-ngrams; do
    copied "$shipped" "$name"
    rm "$name/confidence.json"
  done
  as_the_paper ccpr-paper
  by_ngrams ccpr-ngrams
}
# trainings NAME: the folders of a run of the plan with its three seeds, for --model
trainings() { echo "$1=R/$1.seed1,R/$1.seed2,R/$1.seed3"; }

for step in ${*:-mining pairs indexes directions inference ccpr losses names mono left-out seeds vectors queries lift queue sizes multilingual qwen}; do
  case $step in
    mining)
      once bitext.json module eval.bitext --data "$data" --languages de,ru --speed 100000 \
        --fit classifier.json --work MINING --output bitext.md --output bitext.json
      ;;
    pairs)
      once held-out.tsv module finetune.held_out --data "$data" --output held-out.tsv
      once PAIRS module finetune.ccpr.pairs --data "$data" --pairs de-en,cs-en,fi-en,ru-en,ro-en,tr-en --output PAIRS \
        --exclude held-out.tsv "${gold[@]}"
      ;;
    indexes)
      for l in en $languages; do
        text index "$l"
        text sample "$l" --limit 10000
        built "sentence.$l" "index.$l.txt" "$l" sentence
        built "ccpr.$l" "index.$l.txt" "$l" ccpr
        built "xpr.$l" "sample.$l.txt" "$l" xpr
        for r in passage bm25 hybrid memory; do built "$r.$l" "sample.$l.txt" "$l" "$r" --no-split; done
      done
      for r in passage bm25 hybrid; do calibrated "$r" 500; done
      calibrated xpr 200 --drop 0.9
      ;;
    directions)
      translated RUNS plain,sentence,ccpr,xpr,passage,bm25,hybrid,memory 200 --config wmt16 --metrics "$metrics"
      once wmt16.md module eval.report RUNS --output wmt16.md --html wmt16.html
      ;;
    inference)
      once phrase-models phrase_models
      for l in en $languages; do once "ccpr-paper.$l" cp -r "indexes/ccpr.$l" "indexes/ccpr-paper.$l"; done
      calibrated ccpr-paper 500 --drop 0.25 --encoder ccpr-paper
      for l in ro cs tr; do
        built "ccpr-ngrams.$l" "index.$l.txt" "$l" ccpr --encoder ccpr-ngrams
        once "ccpr-ngrams-judged.$l" cp -r "indexes/ccpr-ngrams.$l" "indexes/ccpr-ngrams-judged.$l"
        calibrated_for ccpr-ngrams "$l" 500 --drop 0.25 --encoder ccpr-ngrams
        once "judged.$l" module eval.hints --data "$data" --pairs PAIRS --index "indexes/ccpr-ngrams-judged.$l" \
          --model ccpr-ngrams --segmentation ngrams --conditions index --languages "$l" --limit 300 \
          --fit "indexes/ccpr-ngrams-judged.$l/confidence.json"
        text training "$l" --domains "$all"
        text equal "$l" --words 4 --domains "$all" --limit "$(wc -l < "index.$l.txt")"
        built "training.$l" "training.$l.txt" "$l" ccpr
        built "training-equal.$l" "equal.$l.txt" "$l" ccpr
      done
      cp "$here/papers.toml" papers.toml
      translated RUNS5 plain,learned 200 --config papers.toml --metrics "$metrics"
      translated RUNS34 plain,learned,ngrams,ngrams-judged,ccpr,training,training-equal 500 --config papers.toml \
        --directions en-ro,en-cs,en-tr --metrics "$metrics"
      once inference.md module eval.report RUNS5 --output inference.md
      once table4.md module eval.report RUNS34 --baseline ngrams --systems ngrams,ngrams-judged,learned \
        --output table4.md
      once table34.md module eval.report RUNS34 --output table34.md --systems plain,training,training-equal,ccpr,ngrams,ngrams-judged,learned
      once table3.md module eval.report RUNS34 --baseline training --systems training,training-equal,ccpr --output table3.md
      ;;
    ccpr)
      ccpr ccpr.1
      ccpr cpr --set data.other_contexts=true
      once phrases-dev.json module eval.phrases --suite dev --data "$data" --pairs PAIRS --index indexes/ccpr.en \
        --languages de,ro,ru --distractors 60000 --queries 300 --output phrases-dev.json phrases-dev.md
      gold_phrases phrases-gold --layers 7 --dev-report phrases-dev.json \
        --model cpr ccpr.1 ccpr-e5-small alone:muse untrained:embedded:e5-small
      ;;
    losses)
      once PREPARED module finetune.mdpr.data --data "$data" --output PREPARED --exclude MINING/sets-*/de-en.* MINING/sets-*/ru-en.*
      mdpr losses --set training.hard_negatives=0
      once losses.json passages --model "$(trainings ir)" "$(trainings sema)" "$(trainings lang)" "$(trainings sema-lang)" \
        untrained=embedded:e5-small --primary sema=ir --report losses.md losses.json
      mkdir -p BM25
      for k1 in 0.5 0.9 1.2 1.6 2.0; do
        for b in 0.2 0.4 0.6 0.8; do
          once "BM25/$k1.$b" asked --part dev --model none --k1 "$k1" --b "$b" --output BM25 --report "BM25/$k1.$b.json"
        done
      done
      # 0.9 and 0.6 have the best MRR@100 within a language of all of these.
      once bm25.json asked --part test --model none --k1 0.9 --b 0.6 --output BM25 --report bm25.md bm25.json
      ;;
    names)
      # Lexicons of names with entries of several English words; the rest of DATA as it is.
      mkdir -p NAMES/lexicon
      for d in train dev test align; do ln -sfn "$data/$d" "NAMES/$d"; done
      for f in "$data"/lexicon/{pycountry,cldr-babel,osm-tags,omw-wikt}.*-en.tsv.xz; do
        xzcat "$f" | awk -F'\t' 'split($1, words, " ") > 1' > "NAMES/lexicon/$(basename "$f" .xz)"
      done
      once NAMED module finetune.xpr.data --data NAMES --output NAMED --report names-data.md
      xpr NMODELS/supervised.de-en
      for s in 2 3; do xpr "NMODELS/seed.$s.de-en" --set "training.seed=$s"; done
      names names --models NMODELS --runs NRUNS --dev-pairs 200
      ;;
    mono)
      # Each language's own text; the encoder never sees a sentence beside its translation.
      for l in en $languages; do text mono "$l" --domains "$all"; done
      once MONO module finetune.masked --config masked --text mono.*.txt --output MONO
      xpr MMODELS/supervised.de-en --set model.encoder=MONO --set model.tuning=full --set model.layer=6 \
        --set training.learning_rate=1e-4
      names mono --models MMODELS --runs MRUNS --encoder MONO --dev-pairs 200
      ;;
    left-out)
      mdpr left-out --set training.hard_negatives=0
      parts="part-sema part-lang part-sema-lang part-lang-domain part-sema-lang-domain"
      # shellcheck disable=SC2046
      once left-out.json passages --model "$(trainings ir)" $(for p in $parts; do trainings "$p"; done) \
        --without ru,tr --primary part-sema-lang=part-sema --against part-sema-lang=part-lang part-lang-domain=part-lang \
        part-sema-lang-domain=part-sema-lang --report left-out.md left-out.json
      ;;
    seeds)
      for s in 2 3; do ccpr "ccpr.$s" --set "training.seed=$s"; done
      ccpr ccpr.code --set training.own_phrases=false --set training.span_negatives=true
      gold_phrases phrases-seeds --model cpr ccpr=ccpr.1,ccpr.2,ccpr.3 ccpr.code
      ;;
    vectors)
      once bitext-vectors.json module eval.bitext --data "$data" --languages de,ru \
        --models embedded:e5-small R/ir.seed1 R/sema.seed1 --work MINING --output bitext-vectors.md --output bitext-vectors.json
      ;;
    queries)
      for l in de ru ro tr; do
        for m in titles generated; do
          once "queries.$l.$m" module finetune.mdpr.queries --data "$data" --language "$l" --method "$m" --prepared PREPARED --limit 500
        done
      done
      mdpr transfer --seeds 1
      once transfer.json passages --model sema=R/sema.seed1 titles=R/titles.seed1 generated=R/generated.seed1 \
        --against generated=sema --primary titles=sema --report transfer.md transfer.json
      ;;
    lift)
      ccpr ccpr.lift --set model.layer=12
      gold_phrases phrases-lift --model ccpr.1 ccpr.lift
      ;;
    queue)
      # Folders of their own, since a model's name must say how it was trained.
      xpr QMODELS/supervised.de-en --set training.steps=56
      xpr QMODELS/ablation.queue.de-en --set training.steps=56 --set training.queue=1024
      names queue --models QMODELS --runs QRUNS --parts models
      ;;
    sizes)
      mdpr connection,pair-sizes,text-sizes --set training.hard_negatives=0
      # shellcheck disable=SC2046
      once sizes.json passages --model "$(trainings ir)" "$(trainings sema)" "$(trainings part-sema-lang)" \
        $(for s in setting-{1,2,3,4,5} pairs-{50,200,800} texts-{0,200,800}; do trainings "$s"; done) \
        --without ru,tr --against setting-2=setting-1 setting-3=setting-1 setting-4=setting-1 setting-5=setting-1 \
        --report sizes.md sizes.json
      ;;
    multilingual)
      xpr AMODELS/multilingual --set 'data.languages=["de-en","cs-en","fi-en","ru-en","ro-en","tr-en"]'
      names names-all --models AMODELS --runs ARUNS --dev-pairs 200 --languages de,cs,fi,ru,ro,tr
      ;;
    qwen)
      cp "$here/papers.toml" papers.toml
      translated RUNS16 qwen-plain,qwen-ccpr 50 --config papers.toml --metrics bleu,chrf
      once qwen.md module eval.report RUNS16 --baseline qwen-plain --output qwen.md
      ;;
    *)
      no_step "$step"
      ;;
  esac
done
