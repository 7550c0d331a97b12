# What the scripts of this folder share. DATA, WORK and the steps to run are their arguments; commands run in WORK.
# PYTHON (default: python) is the interpreter.
if [ $# -lt 2 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
data=$(realpath "$1") here=$(realpath "$(dirname "$0")")
mkdir -p "$2"
cd "$2"
shift 2
python=${PYTHON:-python}
languages="de cs fi ru ro tr"
gold=("$data"/align/{roen.src-tgt,enfr.src-tgt,xl-wa.en-ru.dev.tsv,xl-wa.en-ru.test.tsv})
all=news,mixed,wiki/reddit,news+captions,conversation,fiction,fiction-game,tech-docs,ui,medical
mkdir -p done indexes

# once NAME COMMAND ...: a command that is not run again once it has ended well
once() {
  local name=${1//\//.}
  shift
  if [ -e "done/$name" ]; then return; fi
  echo "== $name" >&2
  "$@"
  touch "done/$name"
}
module() { "$python" -m "$@"; }
rag() { "$python" -m rag_mt "$@"; }
# text NAME LANGUAGE [OPTION ...]: NAME.LANGUAGE.txt, of one side of the training data
text() {
  local fewest=()
  case $2 in fi | tr) fewest=(--words 4) ;; esac
  once "$1.$2.txt" module eval.data.index_text --data "$data" --side "$2" --output "$1.$2.txt" "${fewest[@]}" \
    --exclude "${gold[@]}" "${@:3}"
}
# built NAME TEXT LANGUAGE RETRIEVER [OPTION ...]: indexes/NAME of TEXT
built() { once "$1" indexed "$@"; }
# The exit code 1 says that some lines of the text are unusable, where the index is there.
indexed() {
  rag index build "indexes/$1" "$2" --lang "$3" --retriever "$4" --replace "${@:5}" ||
    { [ $? -eq 1 ] && [ -e "indexes/$1/manifest.json" ]; }
}
# calibrated_for NAME LANGUAGE LIMIT [OPTION ...]: the least scores of indexes/NAME.LANGUAGE for English sentences
calibrated_for() {
  once "calibrated.$1.$2" rag index calibrate "indexes/$1.$2" "$data/dev/$2-en.tsv" --src en --column 1 --limit "$3" "${@:4}"
}
# calibrated NAME LIMIT [OPTION ...]: those of indexes/NAME.LANGUAGE of all languages, of English ones for each source
calibrated() {
  for l in $languages; do
    once "calibrated.$1.en.$l" rag index calibrate "indexes/$1.en" "$data/dev/$l-en.tsv" --src "$l" --column 2 --limit "$2" "${@:3}"
    calibrated_for "$1" "$l" "${@:2}"
  done
}
copied() {
  rm -rf "$2"
  cp -r "$1" "$2"
}
# as_the_paper FOLDER: a phrase model looks up phrases of the probability that the authors' code asks for
as_the_paper() { sed -i 's/"query_threshold": [0-9.]*/"query_threshold": 0.9/' "$1/ccpr.json"; }
# by_ngrams FOLDER: a phrase model indexes and looks up all n-grams of up to four words
by_ngrams() {
  sed -i -e 's/"query_threshold": [0-9.]*/"query_threshold": 0.0/' -e 's/"index_threshold": [0-9.]*/"index_threshold": 0.0/' \
    -e 's/"max_words": 6/"max_words": 4/' "$1/ccpr.json"
}
no_step() {
  echo "there is no step $1: see the head of $0" >&2
  exit 2
}
