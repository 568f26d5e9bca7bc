#!/bin/sh
# Trains the small models that the checks of this folder compare with other programs.
# usage: make_models.sh TEZGAH OUT [TEXT…]     TEXT: files or folders of English or code, by default Go's own sources
#
# OUT gets a tokenizer and a token file for each pattern that text is cut by, and PATTERN-TIED-HEADS.llm for each pattern,
# tied and untied, with grouped (gqa) and with full (mha) heads. They are tiny, but have seen a little real text often, so
# that what they write greedily is no mere repetition. llama3-rope.llm has Llama 3.1's scaling of rotary frequencies;
# chat.llm and chat-llama3.llm are fine-tuned on conversations; run-lora and run-lora-qv train adapters. text.txt is what the checks encode: code, Turkish, special tokens.
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

# A model with scaled rotary frequencies: an export whose configuration asks for them, imported and trained on.
base=$out/llama3-untied-gqa.llm
rm -rf "$out/rope"
"$tezgah" export --to hf "$base" "$out/rope" >/dev/null
sed -i 's/"rope_type": "default"/"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64/' "$out/rope/config.json"
"$tezgah" import --out "$out/rope.llm" "$out/rope"

# Conversations: sums, which show at a glance whether a model has learned to answer.
i=0
while [ $i -lt 200 ]; do
  a=$((i * 7 % 19)) b=$((i * 11 % 23))
  printf '{"messages":[{"role":"user","content":"%s + %s?"},{"role":"assistant","content":"%s plus %s is %s."}]}\n' $a $b $a $b $((a + b))
  i=$((i + 1))
done >"$out/chats.jsonl"

more() { # more NAME FLAGS…: goes on training, and keeps the model as NAME.llm
  name=$1
  shift
  rm -rf "$out/run-$name"
  "$tezgah" train --out "$out/run-$name" --device cpu --batch 4 --seed 7 "$@" >"$out/run-$name.log" 2>&1 || { cat "$out/run-$name.log"; exit 1; }
  cp "$out/run-$name/model.llm" "$out/$name.llm"
  tail -n 2 "$out/run-$name.log"
}
more llama3-rope --init "$out/rope.llm" --data "$out/llama3.bin" --max-steps 200 --lr 4e-3
more chat --init "$base" --sft "$out/chats.jsonl" --max-steps 200 --lr 4e-3
more chat-llama3 --init "$base" --sft "$out/chats.jsonl" --template llama3 --max-steps 200 --lr 4e-3
more lora --init "$base" --sft "$out/chats.jsonl" --lora r=8,alpha=16 --max-steps 100 --lr 1e-2
more lora-qv --init "$out/gpt2-tied-mha.llm" --data "$out/gpt2.bin" --lora r=4,alpha=6,targets=q,v --max-steps 50 --lr 1e-2
