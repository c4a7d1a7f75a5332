// What a component is called: the smallest of its vertices. Trees are there; every vertex learns of its root's
// label. Where positions ascend with vertices, the root itself is the smallest, and is asked for its name.
#pragma once

#include "algorithms/components/forest.cuh"

struct Arguments {
    Stage stage;
    Rows<Id> rows;                    // of out-arcs
    const Id *vertices[MAX_DEVICES];  // (owned) of the graph, of each device
    MixedSchedule::Row *long_rows;
    u32 *row_bits;                 // as in algorithms/components/tiles.cuh
    const Id *heads[MAX_DEVICES];  // rows.heads of each device
    Id *parents[MAX_DEVICES];
    Id *labels[MAX_DEVICES];  // (all positions) of which a device's own are right
    i64 words;                // of the parents on this device
    u64 rounds;               // neighbours linked after the first, or hooking without atomics
    u64 more_rounds;          // neighbours linked besides, where the sample is of many trees
    u64 jumps;                // of a compress after that
    u32 is_sampled;
    u32 is_directed;
    u32 has_long_rows;
    u32 is_ascending;  // the smallest position of a component is that of its smallest vertex
    u32 tile;          // vertices of one
    u32 padding;
};

constexpr u64 TO_THE_ROOT = ~0ull;
constexpr Id NO_ROOT = -1;
constexpr u32 NAMED = 8;  // vertices that a thread names at once

// visit(places[], there[]) gets COUNT of `count` places a thread, for loads that do not wait for each other;
// a place that is not there is another's of the thread.
template <u32 COUNT = BATCH, class Visit>
__device__ __forceinline__ void team_visit_batches(const Team &team, i64 count, Visit visit) {
    const i64 apart = static_cast<i64>(team.threads());
    for (i64 first = static_cast<i64>(team.thread()); first < count; first += COUNT * apart) {
        i64 places[COUNT];
        bool there[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            places[i] = first + i * apart;
            there[i] = places[i] < count;
            if (!there[i]) places[i] = first;
        }
        visit(places, there);
    }
}

struct Labels {
    const Arguments &arguments;
    const Stage &stage;
    Forest forest;
    i64 active;  // own vertices that have arcs

    __device__ __forceinline__ explicit Labels(const Arguments &arguments)
        : arguments(arguments),
          stage(arguments.stage),
          forest{arguments.parents, stage.devices, stage.device,
                 static_cast<Unsigned>(stage.capacity)},
          active(arguments.rows.classes[CLASS_NONE]) {}

    // Own vertices from some index on, each by itself.
    __device__ __forceinline__ void team_label_each(const Team &team, i64 from) const {
        const Id *vertices = arguments.vertices[stage.device] + from;
        Id *own = arguments.labels[stage.device] + stage.first() + from;
        team_visit_batches(team, stage.owned - from,
                           [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
                               Id vertex[BATCH];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++) vertex[i] = vertices[index[i]];
#pragma unroll
                               for (u32 i = 0; i < BATCH; i++)
                                   if (there[i]) own[index[i]] = vertex[i];
                           });
    }

    __device__ __forceinline__ Id *label(Id root) const {
        const Unsigned owner = forest.owner(root);
        return arguments.labels[owner] + static_cast<i64>(owner) * stage.capacity +
               forest.index(root);
    }

    __device__ __forceinline__ void thread_lower_label(Id root, Id vertex) const {
        Id *const place = label(root);
        if (MERGE == MERGE_NONE) {
            if (vertex < load_relaxed(place)) atomicMin(place, vertex);
        } else if (vertex < load_system(place)) {
            atomicMin_system(place, vertex);
        }
    }

    // Every vertex knows its root, whose label becomes the smallest. Of one root, that of most of the vertices
    // that the thread has seen (Boyer, Moore), it keeps the smallest to itself until the end.
    __device__ __forceinline__ void team_settle(const Team &team) const {
        Id kept = NO_ROOT, smallest = 0;
        u32 votes = 0;
        const Id *vertices = arguments.vertices[stage.device];
        team_visit_batches(team, active, [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
            Id own[BATCH], vertex[BATCH], root[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                own[i] = forest.own(index[i]);
                vertex[i] = vertices[index[i]];
                if (MERGE == MERGE_TREE) root[i] = arguments.parents[0][own[i]];
            }
            if (MERGE != MERGE_TREE) forest.thread_compress(own, there, TO_THE_ROOT, kept, root);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (!there[i]) continue;
                if (MERGE == MERGE_TREE && stage.device != 0)
                    arguments.parents[stage.device][own[i]] = root[i];
                if (root[i] == kept) {
                    votes++;
                    smallest = min(smallest, vertex[i]);
                } else if (votes > 0) {
                    votes--;
                    thread_lower_label(root[i], vertex[i]);
                } else {
                    if (kept != NO_ROOT) thread_lower_label(kept, smallest);
                    kept = root[i], smallest = vertex[i], votes = 1;
                }
            }
        });
        if (kept != NO_ROOT) thread_lower_label(kept, smallest);
    }

    // Labels of roots are read, those of others written.
    __device__ __forceinline__ void team_label(const Team &team) const {
        const Id *parents = arguments.parents[stage.device];
        Id *own = arguments.labels[stage.device] + stage.first();
        team_visit_batches(team, active, [&](const i64(&index)[BATCH], const bool (&there)[BATCH]) {
            Id vertex[BATCH], root[BATCH], smallest[BATCH];
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                vertex[i] = forest.own(index[i]);
                root[i] = parents[MERGE == MERGE_TREE ? vertex[i] : index[i]];
            }
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) smallest[i] = *label(root[i]);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++)
                if (there[i] && root[i] != vertex[i]) own[index[i]] = smallest[i];
        });
    }

    __device__ __forceinline__ Id name_of(Id root) const {
        return arguments.vertices[forest.owner(root)][forest.index(root)];
    }

    // Where the smallest of a component's positions is that of its smallest vertex: every vertex goes up to its
    // root, and takes its name. The largest component's root must not be asked for its parent by everyone: one
    // place in memory answers once in a cycle or two.
    __device__ __forceinline__ void team_name(const Team &team) const {
        Id *own = arguments.labels[stage.device] + stage.first();
        Id known = NO_ROOT, named = NO_ROOT, its_name = 0;
        team_visit_batches<NAMED>(team, active,
                                  [&](const i64(&index)[NAMED], const bool (&there)[NAMED]) {
                                      Id vertex[NAMED], root[NAMED], name[NAMED];
#pragma unroll
                                      for (u32 i = 0; i < NAMED; i++) {
                                          vertex[i] = forest.own(index[i]);
                                          if (MERGE == MERGE_TREE)
                                              root[i] = arguments.parents[0][vertex[i]];
                                      }
                                      if (MERGE != MERGE_TREE)
                                          forest.thread_find(vertex, known, root);
                                      if (known != named) named = known, its_name = name_of(known);
#pragma unroll
                                      for (u32 i = 0; i < NAMED; i++)
                                          name[i] = root[i] == named ? its_name : name_of(root[i]);
#pragma unroll
                                      for (u32 i = 0; i < NAMED; i++)
                                          if (there[i]) own[index[i]] = name[i];
                                  });
        team_label_each(team, active);
    }
};
