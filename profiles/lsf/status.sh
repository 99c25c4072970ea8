#!/bin/sh
# The status of a job, in Snakemake's words.
case $(bjobs -noheader -o stat "$1" 2>&1) in
DONE*) echo success ;;
EXIT* | *"is not found"*) echo failed ;;
# Waiting or stopped; or LSF does not answer, and that must not make a job count as failed.
*) echo running ;;
esac
