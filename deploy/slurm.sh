#!/bin/bash
# One model over four nodes, started again when a node fails, with a router on the first that keeps clients' streams going.
#
#     sbatch deploy/slurm.sh /models/model.gguf 10.0.0.0/24
#
# The model lies under the same path on every node; the second argument is the private network of the nodes. Clients reach the
# router on port 8080 of the first node. Keys, one a line, are in the file that AERIE_API_KEY_FILE names. The job's status is
# that of the group when it last ended.
#SBATCH --job-name=aerie
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
set -u
model=$1 network=$2
export OMPI_MCA_btl_tcp_if_include=$network OMPI_MCA_oob_tcp_if_include=$network
aerie router http://127.0.0.1:8081 --host 0.0.0.0 --port 8080 --wait 900 --replays 10 &
router=$!
trap 'kill -TERM $router; wait $router; exit 143' TERM INT
failures=0 status=1
while kill -0 "$router" 2>/dev/null && [ $failures -lt 20 ]; do
    srun --mpi=pmix --kill-on-bad-exit=1 \
        aerie serve -m "$model" --machines auto --machines-limit 60 --host 127.0.0.1 --port 8081
    status=$?
    [ $status -eq 0 ] && break
    failures=$((failures + 1))
    echo "the group has ended with status $status ($failures of 20)" >&2
    sleep 5
done
kill -TERM $router 2>/dev/null || echo "the router has ended before the group" >&2
wait $router
exit $status
