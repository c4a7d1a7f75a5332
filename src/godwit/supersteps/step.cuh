// Supersteps: all blocks of all devices run one step, meet, and go on; control stays on the devices.
//
// A primitive is a `body`, which runs one superstep of a kind (its *phase*), and a `decide`, which returns
// the next phase by sums over all blocks of all devices. Between two supersteps all data is in arrays or
// `control->state`, besides any copies in registers or shared memory: so a kernel may leave at any meeting
// and be launched again with the phase that was next.
//
// Vertices have *positions*: device d owns those from d * capacity on. Arrays of vertices have room for all
// positions on every device ("duplicate-all"): an owner computes its range, and stores what others need
// into their memory as it goes. A meeting makes all of it visible.
//
// Meeting of devices: each writes its report into its slots at every other one, in halves of words. A half
// has the number of the meeting (the *epoch*) in the same 64 bits, so it is valid when its epoch is
// current, without a flag behind a fence. A slot of epoch e is written again at e + 2, after its reader has
// passed e + 1. A fence orders a device's earlier stores to others' memory before its report. Sums are
// added in the order of devices: all devices get the same bits and decide alike. The asynchronous engine
// has an exchange of its own (worker/cuda/meeting.cuh), as its reports differ by receiver and have one flag
// for all words.
//
// Every block has the state in shared memory. Blocks load it when they are released; the block that ends a
// superstep changes it, and writes it back first. A block that goes on alone keeps its copy.
#pragma once

#include "runtime/cuda/include/barrier.cuh"

constexpr u32 COUNTS = 8;   // integers that are summed over blocks and devices
constexpr u32 AMOUNTS = 4;  // floating-point numbers that are summed in the same way
constexpr u32 SUM_WORDS = COUNTS + AMOUNTS;

// Phase: the run is finished.
constexpr u32 STOP = 0xffffffffu;
// Bit of a phase: one block of each device runs it alone.
constexpr u32 ALONE = 0x80000000u;
// Bit of a phase that `decide` returns: the kernel leaves before it, and the host acts.
constexpr u32 LEAVE_FIRST = 0x40000000u;

constexpr u32 PROFILED_STEPS = 64;
constexpr u32 REPORTS_AT_ONCE = 4;

struct Sums {
    u64 counts[COUNTS];
    double amounts[AMOUNTS];
};

constexpr u32 STATE_WORDS = 32;
constexpr u32 STEP = STATE_WORDS - 2;   // word of the state: supersteps so far
constexpr u32 EPOCH = STATE_WORDS - 1;  // word of the state: meetings with other devices so far

struct StepControl {
    u64 release;  // as in barrier.cuh
    u64 arrived;
    u64 cursors[4];          // of work that blocks claim: 0 when a superstep begins
    Sums mine;               // of this device's blocks, for the next meeting
    u64 state[STATE_WORDS];  // of the primitive, except the last two words; equal on all devices
    u64 run_counts[COUNTS];  // of this device, over all supersteps
    u64 ended_ns[PROFILED_STEPS];  // ends of the last supersteps, the gate first, by number
    u32 phases[PROFILED_STEPS];    // and their phases
    u32 phase;                     // the next one
    u32 status;
};

struct StepReport {
    u64 halves[2 * (SUM_WORDS + 1)];  // epoch << 32 | half a word; the last word are flags
};

// What a launch leaves for the host, in host memory.
struct StepOutcome {
    u64 state[STATE_WORDS];
    u64 run_counts[COUNTS];
    u32 last_phase;  // of the last superstep
    u32 phase;       // the next one
    u32 status;
    u32 padding;
};

struct StepBoard {
    StepReport reports[2][MAX_DEVICES];
};

// How a launch begins: in the state that the one before has left, with a run of its own, or with a run that follows
// another one in the same stream, without the host between them. That run adds to the counts of the one before, and
// does nothing unless that has finished.
enum Begin : u32 { GOES_ON, BEGINS, FOLLOWS };

struct Stage {
    StepControl *control;
    StepBoard *board;
    StepBoard *boards[MAX_DEVICES];
    const u32 *stop;  // in host memory: give up waiting for other devices
    u32 *ended;       // in host memory: set by the last meeting of a launch, after all other stores
    StepOutcome *outcome;  // in host memory: written before that
    i64 capacity;          // positions of a device
    i64 owned;             // own vertices
    u64 slice_ns;          // 0: one superstep a launch
    u64 patience_ns;
    u64 latency_ns;  // added to every meeting of devices, for experiments
    u32 devices;
    u32 device;
    u32 prepare;  // return at once: the launch only loads the kernel
    u32 early;  // the first superstep accesses no other device's memory, and so precedes the first meeting
    u32 begins;       // how the launch begins (Begin); a run of its own begins in `first_state`
    u32 first_phase;  // of a run that begins
    u64 first_state[STATE_WORDS];

    // A word of the state with which a launch begins. Meetings are counted over all runs: reports of earlier
    // ones stay on the boards.
    __device__ __forceinline__ u64 initial_word(u32 which) const {
        return begins && which != EPOCH ? first_state[which] : control->state[which];
    }
    __device__ __forceinline__ u32 initial_phase() const {
        return begins ? first_phase : control->phase;
    }
    // No block changes the status before all have called this: they meet in between.
    __device__ __forceinline__ bool may_begin() const {
        return begins != FOLLOWS || load_relaxed(&control->status) == FINISHED;
    }
    __device__ __forceinline__ i64 first() const { return device * capacity; }
};

// Own rows, by local index; targets are positions, by descending degree except in weighted and ordered
// rows. Rows are grouped by class of degree: class k has rows [classes[k], classes[k + 1]). Of a directed
// graph that is the in-degree, also of out-rows, and rows of class THREAD may be empty.
template <class Id>
struct Rows {
    const i64 *offsets;
    const Id *targets;
    const Id *heads;  // the first target of each row, or -1
    i64 classes[7];   // above 4096 arcs, 256, 32, 4, 0; none; end
};

constexpr u32 CLASS_GRID = 0, CLASS_BLOCK = 1, CLASS_WARP = 2, CLASS_GROUP = 3, CLASS_THREAD = 4,
              CLASS_NONE = 5;

struct StepBlock {
    u64 word;  // the last release that the block has loaded
    u64 own;   // broadcast to the threads of the block in a superstep
    Sums sums;
    u64 state[STATE_WORDS];
};

// The blocks that run a superstep: the whole grid, or one.
struct Team {
    StepControl *control;
    u32 block;
    u32 blocks;

    __device__ __forceinline__ u64 thread() const {
        return static_cast<u64>(block) * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ u64 threads() const { return static_cast<u64>(blocks) * blockDim.x; }
    // Consecutive numbers belong to different blocks.
    __device__ __forceinline__ u64 warp() const {
        return static_cast<u64>(warp_id()) * blocks + block;
    }
    __device__ __forceinline__ u64 warps() const {
        return static_cast<u64>(blocks) * (blockDim.x / WARP);
    }
    __device__ __forceinline__ void wait(StepBlock &shared) const {
        if (blocks == 1)
            __syncthreads();
        else
            grid_wait(control, &shared.word);
    }
};

// Add the lanes' amounts to the block's sums. All lanes participate.
__device__ __forceinline__ void warp_count(StepBlock &block, u32 which, u64 amount) {
    if (!__any_sync(FULL_WARP, amount != 0)) return;
    if (__any_sync(FULL_WARP, amount >> 27 != 0)) {
        amount = warp_sum(amount);
    } else {
        amount = __reduce_add_sync(FULL_WARP, static_cast<u32>(amount));
    }
    if (lane_id() == 0) atomicAdd(&block.sums.counts[which], amount);
}

__device__ __forceinline__ void warp_amount(StepBlock &block, u32 which, double amount) {
    if (!__any_sync(FULL_WARP, amount != 0)) return;
    amount = warp_sum(amount);
    if (lane_id() == 0 && amount != 0) atomicAdd(&block.sums.amounts[which], amount);
}

// Add the block's sums to the device's. All threads participate; blocks have at least two warps.
__device__ __forceinline__ void block_add_sums(StepControl *control, StepBlock &block) {
    __syncthreads();
    u32 which = threadIdx.x;
    if (which < COUNTS && block.sums.counts[which]) {
        atomicAdd(&control->mine.counts[which], block.sums.counts[which]);
        block.sums.counts[which] = 0;
    }
    which = threadIdx.x - WARP;
    if (threadIdx.x >= WARP && which < AMOUNTS && block.sums.amounts[which] != 0) {
        atomicAdd(&control->mine.amounts[which], block.sums.amounts[which]);
        block.sums.amounts[which] = 0;
    }
    __syncthreads();
}

__device__ __forceinline__ double amount_of(u64 bits) {
    double amount;
    memcpy(&amount, &bits, 8);
    return amount;
}

__device__ __forceinline__ u64 bits_of_amount(double amount) {
    u64 bits;
    memcpy(&bits, &amount, 8);
    return bits;
}

constexpr u32 REPORT_HALVES = 2 * (SUM_WORDS + 1);
static_assert(REPORT_HALVES <= WARP);

// Send the device's report to all others, by one warp. Lane k < SUM_WORDS has word k, lane SUM_WORDS the
// flags. Returns the lane's half of the report.
__device__ __forceinline__ u64 warp_send_sums(const Stage &stage, u32 epoch, u64 word) {
    u32 lane = lane_id();
    u64 whole = __shfl_sync(FULL_WARP, word, lane / 2);
    u64 half = static_cast<u64>(epoch) << 32 | (lane & 1 ? whole >> 32 : whole & 0xffffffffull);
    if (stage.latency_ns) {
        u64 until = now_ns() + stage.latency_ns;
        while (now_ns() < until) __nanosleep(100);
    }
    __threadfence_system();  // order the stores of this device's blocks to others first
    __syncwarp();
    for (u32 other = 0; other < stage.devices; other++)
        if (other != stage.device && lane < REPORT_HALVES)
            store_system(&stage.boards[other]->reports[epoch & 1][stage.device].halves[lane], half);
    return half;
}

// Receive the sums of all devices and the union of their flags, in the same lanes. Returns false on a
// timeout.
__device__ __forceinline__ bool warp_receive_sums(const Stage &stage, u32 epoch, u64 half,
                                                  u64 &word) {
    u32 lane = lane_id();
    u64 begin = now_ns(), total = 0;
    bool in_time = true;
    for (u32 first = 0; first < stage.devices; first += REPORTS_AT_ONCE) {
        u64 theirs[REPORTS_AT_ONCE];
        do {
            // All loads are issued before the first result is used.
#pragma unroll
            for (u32 i = 0; i < REPORTS_AT_ONCE; i++) {
                u32 other = first + i;
                bool is_read =
                    other < stage.devices && other != stage.device && lane < REPORT_HALVES;
                const StepReport *report = &stage.board->reports[epoch & 1][is_read ? other : 0];
                theirs[i] = is_read ? load_relaxed_system(&report->halves[lane]) : half;
            }
            bool are_here = true;
#pragma unroll
            for (u32 i = 0; i < REPORTS_AT_ONCE; i++) are_here &= theirs[i] >> 32 == epoch;
            if (are_here) break;
            u64 waiting = now_ns() - begin;
            // The host's word is behind a bus: it is not loaded in a wait of usual length.
            in_time =
                waiting <= stage.patience_ns && !(waiting > ASK_HOST_NS && load_system(stage.stop));
        } while (in_time);
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < REPORTS_AT_ONCE; i++) {
            u64 low = __shfl_sync(FULL_WARP, theirs[i], 2 * lane % WARP) & 0xffffffffull;
            u64 high = __shfl_sync(FULL_WARP, theirs[i], (2 * lane + 1) % WARP) << 32;
            if (first + i >= stage.devices) continue;
            if (lane < COUNTS)
                total += low | high;
            else if (lane < SUM_WORDS)
                total = bits_of_amount(amount_of(total) + amount_of(low | high));
            else
                total |= low | high;
        }
    }
    word = total;
    in_time = __all_sync(FULL_WARP, in_time);
    __threadfence_system();
    return in_time;
}

// Write the outcome of a launch to the host's memory, and then that it has ended.
__device__ __forceinline__ void warp_report(const Stage &stage, const StepBlock &block) {
    u32 lane = lane_id();
    const StepControl *control = stage.control;
    StepOutcome *outcome = stage.outcome;
    store_system(&outcome->state[lane], block.state[lane]);
    if (lane < COUNTS) store_system(&outcome->run_counts[lane], control->run_counts[lane]);
    if (lane == 0) {
        u64 step = block.state[STEP];
        store_system(&outcome->last_phase, control->phases[step % PROFILED_STEPS]);
        store_system(&outcome->phase, control->phase);
        store_system(&outcome->status, control->status);
    }
    __threadfence_system();
    __syncwarp();
    if (lane == 0) store_system(stage.ended, 1u);
}

// End a superstep, or begin the first one, by one warp of each device. Returns flags << 32 | phase.
// `counted` are the sums of the device's blocks; after a superstep of one block alone, its own.
template <class Decide>
__device__ __forceinline__ u64 warp_end_step(const Stage &stage, StepBlock &block, u64 *counted,
                                             u32 phase, bool is_gate, u64 begin_ns, Decide decide) {
    u32 lane = lane_id();
    StepControl *control = stage.control;
    u64 word = 0, now = now_ns();
    if (lane < SUM_WORDS)
        word = load_system(&counted[lane]);
    else if (lane == SUM_WORDS && now - begin_ns >= stage.slice_ns)
        word = FLAG_LEAVE;  // clocks differ, but all devices receive the same flags
    if (is_gate) {
        block.state[lane] = stage.initial_word(lane);
        phase = stage.initial_phase();
    }
    __syncwarp();
    bool is_first =
        stage.begins == BEGINS && block.state[STEP] == 0;  // or the gate before the first superstep
    u32 epoch = static_cast<u32>(block.state[EPOCH]) + 1;
    u64 half = HAS_PEERS && stage.devices > 1 ? warp_send_sums(stage, epoch, word) : 0;
    // While the report is under way:
    if (lane < SUM_WORDS) counted[lane] = 0;
    if (lane < COUNTS)
        control->run_counts[lane] = (is_first ? 0 : control->run_counts[lane]) + word;
    if (lane < 4) control->cursors[lane] = 0;
    bool in_time = !HAS_PEERS || stage.devices == 1 || warp_receive_sums(stage, epoch, half, word);
    Sums sums;
    for (u32 which = 0; which < COUNTS; which++)
        sums.counts[which] = __shfl_sync(FULL_WARP, word, which);
    for (u32 which = 0; which < AMOUNTS; which++)
        sums.amounts[which] = amount_of(__shfl_sync(FULL_WARP, word, COUNTS + which));
    u64 flags = __shfl_sync(FULL_WARP, word, SUM_WORDS), outcome = 0;
    if (lane == 0) {
        u64 step = block.state[STEP] + !is_gate;
        control->ended_ns[step % PROFILED_STEPS] = now;
        control->phases[step % PROFILED_STEPS] = phase;
        if (in_time && !is_gate) phase = decide(phase, sums, block.state);
        u32 status = RUNNING;
        if (!in_time)
            status = PEER_LOST;
        else if (phase == STOP)
            status = FINISHED;
        else if (!is_gate && ((flags & FLAG_LEAVE) || (phase & LEAVE_FIRST)))
            status = LEFT;
        if (phase != STOP) phase &= ~LEAVE_FIRST;
        block.state[STEP] = step;
        block.state[EPOCH] += stage.devices > 1;
        control->phase = phase;
        control->status = status;
        outcome = phase | (status == RUNNING ? 0ull : static_cast<u64>(FLAG_STOP) << 32);
    }
    __syncwarp();
    control->state[lane] = block.state[lane];
    __syncwarp();  // order it before the release, which lane 0 stores
    outcome = __shfl_sync(FULL_WARP, outcome, 0);
    if (Meeting{outcome}.stops()) warp_report(stage, block);
    return outcome;
}

// The meeting between two supersteps. As grid_meet, except: a block has the generation of the last release
// that it loaded, and after a superstep of one block alone, the others only wait for its release, without
// arriving. They miss no generation: only the block that is alone releases without them, and it stays in
// its generation until it is no longer alone.
template <class Decide>
__device__ __forceinline__ Meeting step_meet(const Stage &stage, StepBlock &block, Meeting last,
                                             bool is_gate, bool was_alone, u64 begin_ns,
                                             Decide decide) {
    StepControl *control = stage.control;
    block_delay(1);
    __syncthreads();
    if (warp_id() == 0) {
        u64 generation = block.word >> 40, ticket = 0;
        bool ends = was_alone && blockIdx.x == 0;
        if (!was_alone) {
            if (lane_id() == 0) {
                if (stage.devices > 1)
                    __threadfence_system();
                else
                    __threadfence();
                ticket = atomicAdd(&control->arrived, 1ull);
                __threadfence();
            }
            ends = __shfl_sync(FULL_WARP, ticket, 0) == gridDim.x - 1;
        }
        __syncwarp();
        u64 word = 0;
        if (ends) {
            u64 *counted = reinterpret_cast<u64 *>(was_alone ? &block.sums : &control->mine);
            word = warp_end_step(stage, block, counted, last.phase(), is_gate, begin_ns, decide);
            if (lane_id() == 0) {
                bool stops = Meeting{word}.stops();
                bool goes_on = was_alone && !stops && (word & ALONE);
                generation = (generation + (goes_on ? 0 : 1)) & 0xffffff;
                word |= generation << 40;
                if (!was_alone) control->arrived = 0;
                if (!goes_on) store_release(&control->release, word);
            }
        } else {
            if (lane_id() == 0) {
                do {
                    word = load_acquire(&control->release);
                } while ((word >> 40) == generation);
            }
            word = __shfl_sync(FULL_WARP, word, 0);
            // If one block goes on alone, it changes the state while others would load it.
            Meeting next{word};
            if (next.stops() || !(next.phase() & ALONE) || blockIdx.x == 0)
                block.state[lane_id()] = control->state[lane_id()];
        }
        if (lane_id() == 0) block.word = word;
    }
    __syncthreads();
    return Meeting{block.word};
}

// Run supersteps until the run is finished or the slice of time is over. The first meeting is the start
// gate: no device begins before all run. An *early* first superstep comes before that meeting, which ends
// it and is the gate: devices that are launched first run it while others are launched.
template <class Body, class Decide>
__device__ __forceinline__ void run_steps(const Stage &stage, Body body, Decide decide) {
    __shared__ StepBlock block;
    if (stage.prepare || !stage.may_begin()) return;
    StepControl *control = stage.control;
    u64 begin_ns = now_ns();
    if (threadIdx.x == 0) block.word = load_relaxed(&control->release);
    if (threadIdx.x < SUM_WORDS) reinterpret_cast<u64 *>(&block.sums)[threadIdx.x] = 0;
    Meeting meeting{stage.initial_phase()};
    // All meetings are one call, so that there is one copy of the code.
    bool is_gate = !(stage.early && stage.begins);
    if (!is_gate) {
        if (warp_id() == 0) block.state[lane_id()] = stage.initial_word(lane_id());
        if (blockIdx.x == 0 && threadIdx.x == 0) control->ended_ns[0] = begin_ns;
        __syncthreads();
    }
    do {
        bool is_alone = !is_gate && (meeting.phase() & ALONE);
        if (!is_gate && (!is_alone || blockIdx.x == 0)) {
            const Team team{control, is_alone ? 0 : blockIdx.x, is_alone ? 1 : gridDim.x};
            block_delay(2);
            body(meeting.phase(), team, block);
            if (!is_alone) block_add_sums(control, block);
        }
        meeting = step_meet(stage, block, meeting, is_gate, is_alone, begin_ns, decide);
        is_gate = false;
    } while (!meeting.stops());
}
