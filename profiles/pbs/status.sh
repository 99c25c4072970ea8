#!/bin/sh
# What became of a job, in Snakemake's words. PBS tells of ended jobs (-x) where job_history_enable is set.
if told=$(qstat -x -f "$1" 2>&1); then
    case $told in
    *"job_state = F"* | *"job_state = C"*)
        case $told in
        *"xit_status = 0"*) echo success ;;
        *) echo failed ;;
        esac
        ;;
    *) echo running ;;
    esac
else
    case $told in
    *nknown*)
        echo "PBS knows no job $1 any more; ask for job_history_enable" >&2
        echo failed
        ;;
    # A server that is busy must not make a job count as failed.
    *) echo running ;;
    esac
fi
