#!/bin/sh
# The status of a job, in Snakemake's words: running, success or failed. Snakemake asks for each job;
# Kubernetes is asked once for all, and its answer is kept for some seconds.
keep=${EOPIPE_STATUS_SECONDS:-10}
folder=.snakemake/kubernetes-status
answer=$folder/answer
unknown=$folder/unknown-$1
now=$(date +%s)
is_new=
mkdir -p "$folder"

# Name and conditions of each Job that submit.py created in this namespace.
query() {
    kubectl get job --selector app.kubernetes.io/name=eopipe --output \
        'jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.status=="True")].type}{"\n"}{end}'
}

in_words() {
    case $1 in
    *Failed* | *NotFound*) echo failed ;;
    *Complete*) echo success ;;
    # Waiting; or the server does not answer, and that must not make a job count as failed.
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
in_words "$(kubectl get job "$1" --output 'jsonpath={.status.conditions[?(@.status=="True")].type}' 2>&1)"
