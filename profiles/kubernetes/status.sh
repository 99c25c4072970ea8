#!/bin/sh
# The status of a Job, in Snakemake's words.
case $(kubectl get job "$1" --output 'jsonpath={.status.conditions[?(@.status=="True")].type}' 2>&1) in
*Failed* | *NotFound*) echo failed ;;
*Complete*) echo success ;;
# Waiting; or the server does not answer, and that must not make a job count as failed.
*) echo running ;;
esac
