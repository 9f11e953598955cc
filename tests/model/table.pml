/*
 * The table machine: tickets with claims, first come first served, nested calls.
 *
 * Up to ROOTS trees of calls share a table. A call of a tree may nest others, side by
 * side or one in the other, at most NESTED open at once in a tree, any number over time.
 * Every event (a root comes, a call nests one, a call ends) is one step; the machine
 * answers in that same step: it fails the victims of deadlocks, then grants what it can.
 * All orders of events and all claims are explored.
 *
 * A call waits for the holders and the earlier tickets that it conflicts with, also for
 * those it may pass itself ("over all blockers": else two calls, each of which may pass only
 * while the other may not, have no one answer), and a call with open nested calls for these.
 *
 * Left out: slots, cancel, abandoned calls, tickets of turns.
 */

#ifndef ROOTS
#define ROOTS 3
#endif
#ifndef NESTED
#define NESTED 1
#endif
#ifndef OPEN
#define OPEN (ROOTS * NESTED)
#endif
#ifndef KEYS
#define KEYS 3                          /* 1: d.  2: d, d/x.  3: d, d/x, d/y */
#endif

#define CALLS (ROOTS * (1 + NESTED))    /* roots by arrival, then each tree's places */
#define NOBODY CALLS
#define first(r) (ROOTS + (r) * NESTED)
#define root(c) ((c) < ROOTS -> (c) : ((c) - ROOTS) / NESTED)
#define bit(c) (1 << (c))
#define in(c, set) (((set) >> (c)) & 1)
#define places(r) (((1 << NESTED) - 1) << first(r))

byte arrived;                           /* roots so far */
byte open;                              /* nested calls in the table */
short queued, held;                     /* sets of calls: with a ticket; with their claims */
short suspended;                        /* those of `held` with open nested calls */
short above[CALLS];                     /* ancestors */
short earlier[CALLS];                   /* of a queued call: queued calls with an older ticket */
byte claim[CALLS];                      /* 0: nothing, else 1 + 2 * key + (WRITE or READ) */

#define key(c) ((claim[c] - 1) / 2)     /* 0: d, 1: d/x, 2: d/y */
#define writes(c) ((claim[c] - 1) % 2)

/* ------------------------------------------------------------------ the machine */

#ifdef FAULT_SKIP_PREFIX
#define prefix(a, b) ((a) == (b))
#else
#define prefix(a, b) ((a) == 0 || (a) == (b))
#endif
#define overlap(a, b) (prefix(key(a), key(b)) || prefix(key(b), key(a)))
#define conflict(a, b) (claim[a] && claim[b] && (writes(a) || writes(b)) && overlap(a, b))

hidden byte c, k, below, chosen, clear; /* hidden: scratch of one step, no part of a state */
hidden short behind[CALLS];             /* blockers: holders, and earlier waiters */
hidden short waits[CALLS];              /* for whom a call waits, directly or not */

/* Those who wait for a call wait for all that it waits for: Warshall's closure. */
inline close_waits() {
    for (k : 0 .. CALLS - 1) {
        for (c : 0 .. CALLS - 1) {
            if
            :: in(k, waits[c]) -> waits[c] = waits[c] | waits[k]
            :: else
            fi
        }
    }
}

inline find_waits() {
    for (c : 0 .. CALLS - 1) {
        behind[c] = 0;
        waits[c] = 0;
        for (k : 0 .. CALLS - 1) {
            if
            :: in(k, (held & ~above[c]) | earlier[c]) && in(c, queued) && conflict(c, k) ->
                behind[c] = behind[c] | bit(k)
            :: in(c, above[k]) -> waits[c] = waits[c] | bit(k)
            :: else
            fi
        }
        waits[c] = waits[c] | behind[c]
    }
#ifndef FAULT_DIRECT_ONLY
    close_waits()
#endif
}

#if defined(FAULT_NO_PASSING)
#define passes(c, waiter) false
#elif defined(FAULT_STALE_PASSING)
#define passes(c, waiter) ((c) == entering && (waits[waiter] & above[c]))
#elif defined(FAULT_BARGE)
#define passes(c, waiter) true
#else
#define passes(c, waiter) (waits[waiter] & above[c])
#endif

#ifdef FAULT_LATEST_FIRST
#define older(a, b) in(b, earlier[a])
#else
#define older(a, b) in(a, earlier[b])
#endif

inline find_clear() {                   /* the oldest ticket that nobody blocks any more */
    chosen = NOBODY;
    for (c : 0 .. CALLS - 1) {
        clear = in(c, queued) && !(behind[c] & held);
        for (k : 0 .. CALLS - 1) {
            clear = clear && !(in(k, behind[c] & queued) && !passes(c, k))
        }
#ifdef FAULT_COVERED
        for (k : 0 .. CALLS - 1) {      /* the parent has it: no need to ask the table */
            if
            :: in(c, queued) && in(k, above[c]) && claim[k] == claim[c] -> clear = true
            :: else
            fi
        }
#endif
        if
        :: clear && (chosen == NOBODY || older(c, chosen)) -> chosen = c
        :: else
        fi
    }
}

#ifdef FAULT_WRONG_VICTIM
#define younger(a, b) (root(a) < root(b))
#else
#define younger(a, b) (root(a) > root(b) || (root(a) == root(b) && in(b, earlier[a])))
#endif

#ifdef FAULT_WAITERS_COUNT
#define party(c, k) in(k, behind[c])
#else
#define party(c, k) in(k, behind[c] & held)
#endif

inline find_victim() {                  /* queued -> holder -> queued below it -> ... */
    for (c : 0 .. CALLS - 1) {
        waits[c] = 0;
        for (k : 0 .. CALLS - 1) {
            if
            :: party(c, k) ->
                for (below : 0 .. CALLS - 1) {
                    if
                    :: in(below, queued) && (in(k, above[below]) || below == k) ->
                        waits[c] = waits[c] | bit(below)
                    :: else
                    fi
                }
#ifdef FAULT_ONE_BLOCKER
                break
#endif
            :: else
            fi
        }
    }
    close_waits();
    chosen = NOBODY;
    for (c : 0 .. CALLS - 1) {
        if
        :: in(c, waits[c]) && (chosen == NOBODY || younger(c, chosen)) -> chosen = c
        :: else
        fi
    }
#ifdef FAULT_NO_DEADLOCK_SEARCH
    chosen = NOBODY
#endif
}

inline unqueue(call) {
    queued = queued & ~bit(call);
    earlier[call] = 0;
    for (c : 0 .. CALLS - 1) {
        earlier[c] = earlier[c] & ~bit(call)
    }
}

inline forget(call) {
    open = open - (above[call] != 0);
    claim[call] = 0;
    above[call] = 0
}

inline settle() {
    do
    :: queued ->
       find_waits();
       find_victim();
       if
       :: chosen == NOBODY -> break
       :: else ->
          check_deadlock(chosen);
          unqueue(chosen);
          forget(chosen)
       fi
    :: else -> break
    od;
    do
    :: queued ->
       find_waits();
       find_clear();
       if
       :: chosen == NOBODY -> break
       :: else ->
          check_order(chosen);
          unqueue(chosen);
          held = held | bit(chosen)
       fi
    :: else -> break
    od;
    suspended = 0;
    for (c : 0 .. CALLS - 1) {
        suspended = suspended | above[c]
    }
    check_table()
}

#include "properties.pml"

/* ------------------------------------------------------------------- the events */

#define may_end(c) (c < CALLS && in(c, held & ~suspended))
#define may_nest(c) \
    (c < CALLS && in(c, held) && open < OPEN && (places(root(c)) & ~(queued | held)))

#define PICK(able) \
    if \
    :: able(0) -> who = 0 \
    :: able(1) -> who = 1 \
    :: able(2) -> who = 2 \
    :: able(3) -> who = 3 \
    :: able(4) -> who = 4 \
    :: able(5) -> who = 5 \
    :: able(6) -> who = 6 \
    :: able(7) -> who = 7 \
    :: able(8) -> who = 8 \
    fi

inline enter(call, ancestors) {
    if
    :: claim[call] = 0
    :: claim[call] = 1                  /* READ d */
    :: claim[call] = 2                  /* WRITE d */
    :: KEYS > 1 -> claim[call] = 3      /* READ d/x */
    :: KEYS > 1 -> claim[call] = 4      /* WRITE d/x */
    :: KEYS > 2 -> claim[call] = 5      /* READ d/y */
    :: KEYS > 2 -> claim[call] = 6      /* WRITE d/y */
    fi;
    above[call] = ancestors;
    earlier[call] = queued;
    queued = queued | bit(call)
}

/* A root comes; a call nests one in a free place of its tree; a call ends. */
init {
    byte who, entering = NOBODY;
    do
    :: atomic {
           if
           :: arrived < ROOTS ->
              entering = arrived;
              arrived++;
              enter(entering, 0)
           :: PICK(may_nest);
              entering = first(root(who));
              do
              :: in(entering, queued | held) -> entering++
              :: else -> break
              od;
              open++;
              enter(entering, above[who] | bit(who))
           :: PICK(may_end);
              held = held & ~bit(who);
              forget(who)
           fi;
           d_step {
               settle();
               who = 0;
               entering = NOBODY
           }
       }
    :: arrived == ROOTS && !(queued | held) -> break
    od                                  /* stuck here with calls open: an invalid end state */
}
