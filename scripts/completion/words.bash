# What bash calls: shtab's function, for which an option's value must be one word.
# shellcheck shell=bash

_zfstune() {
	local cur=${COMP_WORDS[COMP_CWORD]} word before="" glue=""
	local -a words=()

	# bash makes a word of each = and : as well
	for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
		if [[ $word == "=" && ${words[-1]-} == --* ]]; then
			words+=("")
			glue=yes
		elif [[ $word == [=:] && ${#words[@]} -gt 1 ]]; then
			words[-1]+=$word
			glue=yes
		elif [[ $glue ]]; then
			words[-1]+=$word
			glue=""
		else
			words+=("$word")
		fi
	done
	[[ $cur != [=:] ]] || cur=""
	before=${words[-1]%"$cur"}
	local -a COMP_WORDS=("${words[@]}")
	local COMP_CWORD=$((${#words[@]} - 1))
	_shtab_zfstune
	# it only replaces what follows the last = or :
	COMPREPLY=("${COMPREPLY[@]#"$before"}")
	# more may follow
	[[ " %%OPEN%% " != *" ${words[-2]-} "* ]] || compopt -o nospace 2>/dev/null
}

complete -o bashdefault -F _zfstune zfstune
