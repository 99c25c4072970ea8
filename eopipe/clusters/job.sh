#!/bin/sh
# What an HTCondor job runs: eopipe with the arguments of the job. Written by `eopipe condor`.
#   EOPIPE_STATE        folder of the checkpoints; made first, since HTCondor transfers it
#   EOPIPE_EVERY        seconds after which the training saves and stops, so that HTCondor transfers its checkpoints
#   EOPIPE_PROVISIONER  set on the first node, which reports in its ad as soon as the others can join
#   EOPIPE_RDZV_FILE    file in which the first node writes its address
mkdir -p "$EOPIPE_STATE"

ready() {
    marker="$EOPIPE_RDZV_FILE.$$"
    touch "$marker"
    # If it has ended before, the others are started all the same, and report why.
    until [ "$EOPIPE_RDZV_FILE" -nt "$marker" ]; do
        kill -0 "$1" 2>/dev/null || break
        sleep 1
    done
    rm -f "$marker"
    chirp=$(command -v condor_chirp || echo "$(condor_config_val LIBEXEC)/condor_chirp")
    "$chirp" set_job_attr ProvisionerState 2 || echo "condor_chirp failed: submit others.sub by hand" >&2
}

# HTCondor needs the slot back; the signal may come before the training has begun.
training=""
stopped=""
trap 'stopped=yes; [ -z "$training" ] || kill -TERM "$training"' TERM INT USR1
# Without --foreground timeout would signal the workers too, which belong to eopipe.
timeout --foreground --preserve-status "${EOPIPE_EVERY:-0}" eopipe "$@" &
training=$!
[ -z "$stopped" ] || kill -TERM "$training"
[ -z "$EOPIPE_PROVISIONER" ] || ready "$training" &

# A signal ends `wait`, not the training.
while :; do
    wait "$training"
    code=$?
    kill -0 "$training" 2>/dev/null || break
done
# 75: saved. 143: stopped before it began. HTCondor knows only this one word for "start me again".
case $code in 75 | 143) exit 85 ;; esac
exit "$code"
