# bash completion for shoal; made by `shoal completion bash`.
_shoal() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local key="" words="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$key ${COMP_WORDS[i]}" in
      " run") key="run" ;;
      " serve") key="serve" ;;
      " info") key="info" ;;
      " doctor") key="doctor" ;;
      " models") key="models" ;;
      " pull") key="pull" ;;
      " plan") key="plan" ;;
      " bench") key="bench" ;;
      " trace") key="trace" ;;
      " eval") key="eval" ;;
      " tokenize") key="tokenize" ;;
      " completion") key="completion" ;;
      " man") key="man" ;;
      "bench model") key="bench model" ;;
      "bench fabric") key="bench fabric" ;;
      "bench machine") key="bench machine" ;;
    esac
  done
  case "$key $previous" in
    "run --nodes") return ;;
    "run --split") return ;;
    "run --ctx") return ;;
    "run --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "run --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "run --threads") return ;;
    "run --kernels") return ;;
    "run --system") return ;;
    "run --messages") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "run --logits") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "run --temperature") return ;;
    "run --top-k") return ;;
    "run --top-p") return ;;
    "run --min-p") return ;;
    "run --repetition-penalty") return ;;
    "run --presence-penalty") return ;;
    "run --frequency-penalty") return ;;
    "run --seed") return ;;
    "run --logit-bias") return ;;
    "run -n"|"run --max-tokens") return ;;
    "run --stop") return ;;
    "serve --host") return ;;
    "serve --port") return ;;
    "serve --api-key-file") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "serve --tls-cert") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "serve --tls-key") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "serve --cors-origin") return ;;
    "serve --name") return ;;
    "serve --queue") return ;;
    "serve --grace") return ;;
    "serve --sessions") return ;;
    "serve --cache") return ;;
    "serve --speculation") COMPREPLY=($(compgen -W "off ngram" -- "$current")); return ;;
    "serve --nodes") return ;;
    "serve --split") return ;;
    "serve --ctx") return ;;
    "serve --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "serve --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "serve --threads") return ;;
    "serve --kernels") return ;;
    "doctor --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "doctor --nodes") return ;;
    "plan --nodes") return ;;
    "plan --split") return ;;
    "plan --ctx") return ;;
    "plan --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "bench model -p"|"bench model --prompt-tokens") return ;;
    "bench model -n"|"bench model --answer-tokens") return ;;
    "bench model --depth") return ;;
    "bench model --repeats") return ;;
    "bench model --nodes") return ;;
    "bench model --split") return ;;
    "bench model --ctx") return ;;
    "bench model --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "bench model --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "bench model --threads") return ;;
    "bench model --kernels") return ;;
    "bench fabric --link") COMPREPLY=($(compgen -W "shm tcp verbs ucx" -- "$current")); return ;;
    "bench fabric --nodes") return ;;
    "bench fabric --sizes") return ;;
    "bench fabric --operations") COMPREPLY=($(compgen -W "round-trip stream both-ways all-reduce all-gather broadcast" -- "$current")); return ;;
    "bench fabric --seconds") return ;;
    "bench fabric --rounds") return ;;
    "bench fabric --plot") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "bench machine --threads") return ;;
    "bench machine --types") return ;;
    "trace -o"|"trace --output") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "trace --steps") return ;;
    "trace --depth") return ;;
    "trace --prompt-tokens") return ;;
    "trace --nodes") return ;;
    "trace --split") return ;;
    "trace --ctx") return ;;
    "trace --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "trace --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "trace --threads") return ;;
    "trace --kernels") return ;;
    "eval --text") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "eval --reference") COMPREPLY=($(compgen -f -- "$current")); return ;;
    "eval --window") return ;;
    "eval --limit") return ;;
    "eval --nodes") return ;;
    "eval --split") return ;;
    "eval --ctx") return ;;
    "eval --kv") COMPREPLY=($(compgen -W "f16 q8 f32" -- "$current")); return ;;
    "eval --link") COMPREPLY=($(compgen -W "auto shm tcp verbs ucx" -- "$current")); return ;;
    "eval --threads") return ;;
    "eval --kernels") return ;;
  esac
  case "$key" in
    "") words="run serve info doctor models pull plan bench trace eval tokenize completion man --version -h --help" ;;
    "run") words="-h --help --nodes --split --ctx --kv --exact --link --threads --kernels -q --quiet --system --messages --raw --special --json --stats --logits --temperature --top-k --top-p --min-p --repetition-penalty --presence-penalty --frequency-penalty --seed --logit-bias -n --max-tokens --stop --ignore-end" ;;
    "serve") words="-h --help --host --port --api-key-file --tls-cert --tls-key --cors-origin --name --queue --grace --sessions --cache --no-prefix-cache --speculation --nodes --split --ctx --kv --exact --link --threads --kernels -q --quiet" ;;
    "info") words="-h --help --template --json" ;;
    "doctor") words="-h --help --link --nodes --json" ;;
    "models") words="-h --help --json" ;;
    "pull") words="-h --help --json -q --quiet" ;;
    "plan") words="-h --help --nodes --split --ctx --kv --exact --explain --json" ;;
    "bench") words="model fabric machine -h --help" ;;
    "bench model") words="-h --help -p --prompt-tokens -n --answer-tokens --depth --repeats --nodes --split --ctx --kv --exact --link --threads --kernels -q --quiet --json" ;;
    "bench fabric") words="-h --help --link --nodes --sizes --operations --seconds --rounds --poll --plot -q --quiet --json" ;;
    "bench machine") words="-h --help --threads --types -q --quiet --json" ;;
    "trace") words="-h --help -o --output --steps --depth --prompt-tokens --json --nodes --split --ctx --kv --exact --link --threads --kernels -q --quiet" ;;
    "eval") words="-h --help --text --reference --window --limit --decode --nodes --split --ctx --kv --exact --link --threads --kernels -q --quiet --json" ;;
    "tokenize") words="-h --help --special --add-special --chat --ids --decode --json" ;;
    "completion") words="-h --help" ;;
    "man") words="-h --help" ;;
  esac
  if [[ "$current" != -* ]]; then
    case "$key" in
      "run"|"serve"|"info"|"pull"|"plan"|"bench model"|"trace"|"eval"|"tokenize") words="$words smollm2"; COMPREPLY=($(compgen -f -- "$current")) ;;
    esac
  fi
  COMPREPLY+=($(compgen -W "$words" -- "$current"))
}
complete -o filenames -F _shoal shoal
