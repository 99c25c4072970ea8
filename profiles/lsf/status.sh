#!/bin/sh
# The status of a job, in Snakemake's words: running, success or failed. Snakemake asks for each job;
# LSF is asked once for all, and its answer is kept for some seconds.
keep=${EOPIPE_STATUS_SECONDS:-10}
folder=.snakemake/lsf-status
answer=$folder/answer
unknown=$folder/unknown-$1
now=$(date +%s)
is_new=
mkdir -p "$folder"

# Number and state of each job; of ended ones as long as LSF remembers them (CLEAN_PERIOD, an hour).
query() {
    bjobs -noheader -a -o "jobid stat"
}

in_words() {
    case $1 in
    DONE*) echo success ;;
    EXIT* | *"is not found"*) echo failed ;;
    # Waiting or stopped; or LSF does not answer, and that must not make a job count as failed.
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
# Submitted after the answer, or forgotten: it is asked for alone once an answer is newer than this question.
[ -s "$unknown" ] || echo "$now" > "$unknown"
read -r since < "$unknown"
if [ -z "$is_new" ] && [ "$asked" -le "$since" ]; then
    echo running
    exit
fi
in_words "$(bjobs -noheader -o stat "$1" 2>&1)"
