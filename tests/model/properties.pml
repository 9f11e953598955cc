/*
 * What must hold of the table machine in `table.pml`, which includes this file. It uses
 * the machine's sets and claims, none of its rules: what clashes is told by the leaves
 * that a claim covers, not by prefixes of keys.
 */

#define covers(a, leaf) (claim[a] && (key(a) == 0 || key(a) == leaf))
#define shares(a, b, leaf) (covers(a, leaf) && covers(b, leaf))
#define clash(a, b) ((shares(a, b, 1) || shares(a, b, 2)) && (writes(a) || writes(b)))
#define unrelated(a, b) (!in(a, above[b]) && !in(b, above[a]))

hidden byte i, j, changed;
hidden byte apart, first_come, waits_rightly, all_hold, last_comer, all_can_end;
hidden short awaited[CALLS];            /* what a call stands behind, directly or not */
hidden short stuck, rest, found, elders, before;

#define holds_up(i, j) (in(i, queued) && in(j, held) && unrelated(i, j) && clash(i, j))
#define stands_before(i, j) (in(i, queued) && in(j, earlier[i]) && clash(i, j))
#define blocks(i, j) (holds_up(i, j) || stands_before(i, j))
#define really_blocks(i, j) \
    (holds_up(i, j) || (stands_before(i, j) && !(awaited[j] & above[i])))

/* Whom a call stands behind, grown outwards until nothing is added; who cannot go now. */
inline observe() {
    for (i : 0 .. CALLS - 1) {
        awaited[i] = 0
    }
    do
    :: changed = false;
       for (i : 0 .. CALLS - 1) {
           before = awaited[i];
           for (j : 0 .. CALLS - 1) {
               if
               :: in(j, before) || in(i, above[j]) || blocks(i, j) ->
                   awaited[i] = awaited[i] | bit(j) | awaited[j]
               :: else
               fi
           }
           changed = changed || awaited[i] != before
       }
       if
       :: !changed -> break
       :: else
       fi
    od;
    stuck = 0;
    for (i : 0 .. CALLS - 1) {
        for (j : 0 .. CALLS - 1) {
            if
            :: really_blocks(i, j) -> stuck = stuck | bit(i)
            :: else
            fi
        }
    }
}

/* Tickets that a granted call passes cannot go, and wait for one of its ancestors. */
inline check_order(call) {
    if
    :: earlier[call] ->
       observe();
       for (j : 0 .. CALLS - 1) {
           first_come = !stands_before(call, j) || (in(j, stuck) && (awaited[j] & above[call]));
           assert(first_come)
       }
    :: else
    fi
}

/* The queued calls of `within` that hold the victim up through holders alone. */
inline find_parties(victim, within) {
    rest = bit(victim);                 /* still to be followed */
    found = 0;
    do
    :: rest ->
       i = 0;
       do
       :: !in(i, rest) -> i++
       :: else -> break
       od;
       rest = rest & ~bit(i);
       for (j : 0 .. CALLS - 1) {
           for (c : 0 .. CALLS - 1) {
               if
               :: in(c, within & ~found) && in(j, above[c]) && holds_up(i, j) ->
                   found = found | bit(c);
                   rest = rest | bit(c)
               :: else
               fi
           }
       }
    :: else -> break
    od
}

#define came_before(a, b) \
    (a == b || root(a) < root(b) || (root(a) == root(b) && in(a, earlier[b])))

/* A victim stands on a circle of holders, and on one where nobody came later. */
inline check_deadlock(victim) {
    find_parties(victim, queued);
    all_hold = in(victim, found);
    assert(all_hold);
    elders = 0;
    for (i : 0 .. CALLS - 1) {
        if
        :: in(i, queued) && came_before(i, victim) -> elders = elders | bit(i)
        :: else
        fi
    }
    find_parties(victim, elders);
    last_comer = in(victim, found);
    assert(last_comer)
}

/* Let end whatever nobody holds up, again and again: `rest` are those that never can. */
inline let_end() {
    rest = queued | held;
    do
    :: before = rest;
       for (i : 0 .. CALLS - 1) {
           clear = in(i, rest);
           for (j : 0 .. CALLS - 1) {
               clear = clear && !(in(j, rest) && (in(i, above[j]) || really_blocks(i, j)))
           }
           if
           :: clear -> rest = rest & ~bit(i)
           :: else
           fi
       }
       if
       :: rest == before -> break
       :: else
       fi
    od
}

/* After each step: no overlap, no wait without a reason, no deadlock left unfound. */
inline check_table() {
    for (i : 0 .. CALLS - 1) {
        for (j : i + 1 .. CALLS - 1) {
            apart = !(in(i, held) && in(j, held) && unrelated(i, j) && clash(i, j));
            assert(apart)
        }
    }
    if
    :: queued ->
       observe();
       waits_rightly = stuck == queued;
       assert(waits_rightly);
       let_end();
       all_can_end = rest == 0;
       assert(all_can_end)
    :: else
    fi
}
