#!/bin/sh
# Trains the small models that the checks of this folder compare with other programs.
# usage: make_models.sh TEZGAH OUT [TEXT…]     TEXT: files or folders of English or code, by default Go's own sources
#
# OUT gets a tokenizer and a token file for each pattern that text is cut by, and PATTERN-TIED-HEADS.llm for each pattern,
# tied and untied, with grouped (gqa) and with full (mha) heads. They are tiny, but have seen a little real text often, so
# that what they write greedily is no mere repetition. text.txt is what the checks encode: code, Turkish, special tokens.
set -e
tezgah=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
  src=$(go env GOROOT)/src
  set -- "$src/sort/sort.go" "$src/sort/search.go" "$src/container"
fi
mkdir -p "$out"
specials='<|endoftext|>,<|im_start|>,<|im_end|>,<|pad|>'

{
  cat "$here/turkish.txt"
  printf '<|endoftext|><|im_start|>user\nWhat does this function do?<|im_end|>\n<|im_start|>assistant\n'
  printf 'It'"'"'s a loop: it doesn'"'"'t stop before 12345.67 items — naïve, but O(n²).\r\n\t  \n\n<|im_end|><|unknown|> <|pad|>x<|pad|>\n'
  cat "$here/llama_cpp.mjs" "$here/make_models.sh"
} >"$out/text.txt"

for pattern in llama3 gpt2 turkish; do
  tok=$out/$pattern.json
  "$tezgah" tokenizer train --vocab-size 1200 --pattern $pattern --special "$specials" --out "$tok" "$@" "$here/turkish.txt"
  "$tezgah" data build --tokenizer "$tok" --out "$out/$pattern.bin" "$@" "$here/turkish.txt"
  for tied in tied untied; do
    for heads in gqa mha; do
      # Heads of 24 are not 64/4: head_dim is then no consequence of the rest.
      shape='--kv-heads 2 --head-dim 24'
      [ $heads = mha ] && shape='--kv-heads 4'
      [ $tied = untied ] && shape="$shape --untied"
      run=$out/run-$pattern-$tied-$heads
      rm -rf "$run"
      "$tezgah" train --data "$out/$pattern.bin" --out "$run" --device cpu --d-model 64 --layers 2 --heads 4 $shape --ffn 160 \
        --context 256 --batch 4 --max-steps "${STEPS:-500}" --lr 1e-2 --val-fraction 0.02 --seed 7 >"$run.log" 2>&1 || { cat "$run.log"; exit 1; }
      cp "$run/model.llm" "$out/$pattern-$tied-$heads.llm"
      tail -n 2 "$run.log"
    done
  done
done
