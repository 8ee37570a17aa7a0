# Completions of fzmfs for bash.

_fzmfs_options() { # COMMAND: sets options and words, which are those of -o.
    case $1 in
        @OPTIONS@
    esac
}

_fzmfs_values() { # OPTION: sets values.
    values=
    case $1 in
        @VALUES@
    esac
}

_fzmfs_points() { # The directories that fzmfs is mounted on; the kernel writes a space as \040.
    local line point
    while read -r line; do
        [[ $line == *' - fuse.fzmfs '* ]] || continue
        read -r _ _ _ _ point _ <<<"$line"
        printf -v point '%b' "$point"
        [[ $point == "$cur"* ]] && printf -v point '%q' "$point" && COMPREPLY+=("$point")
    done </proc/self/mountinfo
}

_fzmfs_open() { # No space after a word that goes on.
    [[ ${COMPREPLY-} == *= ]] && compopt -o nospace 2>/dev/null
}

_fzmfs() {
    local cur=$2 prev=$3 word command= options='-h --help -V --version --log' words= values= name=
    local commands='@COMMANDS@'
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ " $commands " == *" $word "* ]] && command=$word && break
    done
    # fzmfs FILE MOUNTPOINT -o ...
    _fzmfs_options "${command:-mount}"
    # Bash makes = a word of its own.
    if [[ $cur == = ]]; then
        cur= name=$prev
    elif [[ $prev == = ]]; then
        name=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $prev == --* ]]; then
        name=${prev#--}
        [[ " $words " == *" ${name//-/_}= "* ]] || name=
    fi
    name=${name##*,} name=${name#--}
    _fzmfs_values "${name//_/-}"
    if [[ $prev == -o || $cur == *,* ]] && [[ -n $words && $cur != -* ]]; then
        local before=
        [[ $cur == *,* ]] && before=${cur%,*},
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${cur##*,}")
        _fzmfs_open
    elif [[ -n $name ]]; then
        [[ -z $values ]] || mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
    elif [[ $command == umount || $command == list ]]; then
        _fzmfs_points
    elif [[ $command == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
    elif [[ $command == completions ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'bash elvish fish powershell zsh' -- "$cur")
    fi
}

# Everything else is a file.
complete -F _fzmfs -o bashdefault -o default fzmfs
