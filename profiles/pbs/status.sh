#!/bin/sh
# The status of a job, in Snakemake's words. PBS keeps ended jobs (-x) where job_history_enable is set.
if status=$(qstat -x -f "$1" 2>&1); then
    case $status in
    *"job_state = F"* | *"job_state = C"*)
        case $status in
        *"xit_status = 0"*) echo success ;;
        *) echo failed ;;
        esac
        ;;
    *) echo running ;;
    esac
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
