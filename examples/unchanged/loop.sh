#!/bin/bash
# A loop with a state file of its own:  relight sbatch loop.sh
#SBATCH --nodes=1 --time=1:00:00 --output=loop.out
#RELIGHT checkpoint.signal: USR1
#RELIGHT checkpoint.done: loop.state

item=0 total=0
[ -e loop.state ] && read -r item total < loop.state
echo "begins with item $item"

# A trap may run between any two lines, so it only notes that it was told; the loop saves where item
# and total belong together.
told=
trap 'told=yes' USR1
save() {
    echo "$item $total" > loop.state.new && mv loop.state.new loop.state # never half a file
    told=
}

while [ "$item" -lt "${ITEMS:-1000}" ]; do
    sleep "${PAUSE:-1}" # here a real one would work on its item
    total=$((total + item * item))
    item=$((item + 1))
    [ "$told" ] && save
done
save
echo "total $total"
