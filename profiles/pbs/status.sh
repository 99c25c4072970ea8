#!/bin/sh
# The status of a job, in Snakemake's words: running, success or failed. Snakemake asks for each job;
# PBS is asked once for all, and its answer is kept for some seconds.
keep=${EOPIPE_STATUS_SECONDS:-10}
folder=.snakemake/pbs-status
answer=$folder/answer
unknown=$folder/unknown-$1
now=$(date +%s)
is_new=
mkdir -p "$folder"

# The jobs that wait or run. How one ended is asked when it is none of them any more.
query() {
    qselect -u "$(id -un)" > "$folder/numbers" || return
    sed 's/$/ Q/' "$folder/numbers"
}

in_words() {
    case $1 in
    "F 0" | "C 0") echo success ;;
    F* | C*) echo failed ;;
    *) echo running ;;
    esac
}

read -r asked 2> /dev/null < "$answer" || asked=0
if [ $((now - asked)) -ge "$keep" ] || [ "$asked" -gt "$now" ]; then
    { echo "$now" && { query 2> "$folder/errors" || sed 1d "$answer" 2> /dev/null; }; } > "$answer.new"
    mv "$answer.new" "$answer"
    asked=$now is_new=yes
fi
if line=$(grep "^$1 " "$answer"); then
    [ ! -e "$unknown" ] || rm "$unknown"
    in_words "${line#* }"
    exit
fi
# Submitted after the answer, or ended: it is asked for alone once an answer is newer than this question.
# PBS keeps ended jobs (-x) where job_history_enable is set.
[ -s "$unknown" ] || echo "$now" > "$unknown"
read -r since < "$unknown"
if [ -z "$is_new" ] && [ "$asked" -le "$since" ]; then
    echo running
    exit
fi
if status=$(qstat -x -f "$1" 2>&1); then
    in_words "$(echo "$status" | awk '
        $1 == "job_state" { state = $3 }
        tolower($1) == "exit_status" { code = $3 }
        END { print state, code }')"
else
    case $status in
    *nknown*)
        echo "PBS does not know job $1 any more; it needs job_history_enable" >&2
        echo failed
        ;;
    # A server that is busy must not make a job count as failed.
    *) echo running ;;
    esac
fi
