#!/usr/bin/env bash
# Runs Ray on one node of a job: a step that cluster/slurm.sh starts, with the arguments of `ray`.
#
# Slurm preempts a job by SIGTERM to its steps: to this script, and on some systems to all that it has started. Ray has
# to stay up meanwhile, since the job could not save without it. So Ray begins with SIGTERM blocked, which all of its
# processes inherit. The signal is passed on to the batch script, to which Slurm does not send it. SIGUSR2 ends Ray.
set -euo pipefail

ray=''
ended=''
trap 'scancel --batch --signal=USR1 "$SLURM_JOB_ID" || true' TERM
trap 'ended=yes; [ -z "$ray" ] || kill -KILL "$ray" 2>/dev/null || true' USR2
mkdir -p "$RAY_TMPDIR"

python -c '
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execvp(sys.argv[1], sys.argv[1:])
' ray "$@" &
ray=$!
[ -z "$ended" ] || kill -KILL "$ray" # it came between the two
status=0
while kill -0 "$ray" 2>/dev/null; do
  status=0
  wait "$ray" || status=$? # a signal interrupts it
done
# The command has left Ray's processes behind. Their own command lines name this job's folder.
pkill -KILL --full -- "$RAY_TMPDIR/" || true
rm -rf "$RAY_TMPDIR"
[ -z "$ended" ] || exit 0
exit "$status"
