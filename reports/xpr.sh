#!/bin/bash
# All runs behind reports/xpr.md and reports/xpr-data.md, one after the other:
#
#   bash reports/xpr.sh DATA WORK [STEP ...]
#
# DATA holds lexicon/, train/, dev/ and test/; everything is made under WORK. Steps: data train seeds ablations layers
# multilingual eval (default: all). Started again it goes on: finished runs are left, a run that was stopped goes on from
# its last checkpoint. MINUTES (default: 20) is what a training run may take, SHIPPED_MINUTES (default: 120) the one of the
# multilingual model, which is the shipped one; a run that needs more stops there. EXAMPLES (default: 4, as in training)
# sentences of a phrase are read in the evaluation, DEV_PAIRS (default: 200) pairs asked in its sweeps.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
data=$1 work=$2
shift 2
steps=${*:-data train seeds ablations layers multilingual eval}
pairs=${PAIRS:-de-en cs-en fi-en ru-en ro-en tr-en}
ablated=${ABLATED:-de-en fi-en ru-en}
seeded=${SEEDED:-de-en}
layered=${LAYERED:-de-en}
minutes=${MINUTES:-20}
phrases=$work/phrases models=$work/models
python=${PYTHON:-python}
mkdir -p "$models"

# train NAME CONFIG [OPTION ...]: a model in $models/NAME
train() {
  local name=$1 config=$2
  shift 2
  if [ -e "$models/$name/finished" ]; then return; fi
  echo "== $name" >&2
  local code=0
  timeout --signal=INT "${minutes}m" \
    "$python" -m finetune.xpr --config "$config" --phrases "$phrases" --output "$models/$name" "$@" || code=$?
  if [ "$code" = 0 ]; then
    touch "$models/$name/finished"
  elif [ "$code" = 124 ] && [ -e "$models/$name/xpr.json" ]; then
    echo "== $name stopped after $minutes minutes: its last checkpoint counts (training.json tells the steps)" >&2
    touch "$models/$name/finished"
  else
    return "$code"
  fi
}

one() { echo "data.languages=[\"$1\"]"; }

for step in $steps; do
  case $step in
    data)
      "$python" -m finetune.xpr.data --data "$data" --output "$phrases" --pairs "${pairs// /,}" --report "$work/xpr-data.md"
      ;;
    train) for pair in $pairs; do train "supervised.$pair" xpr-embedded --set "$(one "$pair")"; done ;;
    seeds)
      for seed in 2 3; do
        for pair in $seeded; do
          train "seed.$seed.$pair" xpr-embedded --set "$(one "$pair")" --set "training.seed=$seed"
        done
      done
      ;;
    ablations)
      for pair in $ablated; do
        only=$(one "$pair")
        train "ablation.sentences.$pair" xpr-embedded --set "$only" --set data.sentences=0
        train "ablation.momentum.$pair" xpr-embedded --set "$only" --set training.momentum=0
        train "ablation.head.$pair" xpr-embedded --set "$only" --set model.head=false
        train "ablation.queue.$pair" xpr-embedded --set "$only" --set training.queue=1024
      done
      ;;
    layers)
      for layer in 4 6 8 10 12; do
        for pair in $layered; do
          train "layer.$layer.$pair" xpr-embedded --set "$(one "$pair")" --set "model.layer=$layer"
        done
      done
      ;;
    multilingual) minutes=${SHIPPED_MINUTES:-120} train multilingual xpr-shipped ;;
    eval)
      "$python" -m eval.phrases --suite xpr --data "$data" --phrases "$phrases" --models "$models" --runs "$work/runs" \
        --examples "${EXAMPLES:-4}" --dev-pairs "${DEV_PAIRS:-200}" --output "$work/xpr.json" "$work/xpr.md"
      ;;
    *)
      echo "there is no step $step: choose among data train seeds ablations layers multilingual eval" >&2
      exit 2
      ;;
  esac
done
