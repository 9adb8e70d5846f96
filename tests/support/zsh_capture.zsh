# For an interactive zsh: what completion offers goes to the file $CAPTURED, and "." when it is
# complete. Completion functions are those in $COMPLETION_DIR.
PROMPT= PS2=
fpath=($COMPLETION_DIR $fpath)
autoload -Uz compinit
compinit -u -d $COMPLETION_DIR/dump
bindkey '^I' complete-word
bindkey '^U' kill-whole-line
zstyle ':completion:*' insert-tab false
# no list: it may ask whether it should scroll
unsetopt autolist automenu
comppostfuncs=(ended)
ended() {
  print -r -- . >>$CAPTURED
  comppostfuncs=(ended) # a completion empties it
}
compadd() {
  # with these it stores matches in arrays, for a later call
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local -a hits prefix
    builtin compadd -A hits "$@"
    zparseopts -E P:=prefix
    (( $#hits == 0 )) || print -rl -- $prefix[2]${^hits} >>$CAPTURED
  fi
  builtin compadd "$@"
}
print -r -- . >>$CAPTURED
