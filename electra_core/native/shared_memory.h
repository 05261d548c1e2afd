// Sums and gathers over the worker processes of one machine, through memory they all have mapped.
//
// Messages over a socket would cost a step two copies through the kernel and several wake-ups. Here every worker copies
// its numbers into its slot, meets the others, adds its share of all slots in rank order, so that the sum is the same on
// every machine and in every run, meets them again, and copies the sum out.
#pragma once

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace electra {

constexpr int64_t CHUNK = 1 << 18;       // floats in a slot: 1 MiB, which stays in a core's own cache
constexpr int64_t SHORT = 1 << 10;       // so few floats are added by everyone, to save the second meeting
constexpr int SPINS = 2000;              // some tens of microseconds, then others may have the core
constexpr int YIELDS = 200;
constexpr long NAP_NANOSECONDS = 50000;  // after that

// One worker's line of the region; alone on its cache line, for the others poll it.
struct alignas(64) Arrival {
    std::atomic<uint64_t> meetings;
    uint64_t chunks;
    int64_t pid;
};

// The region: `workers` arrivals, then two buffers of `workers` slots. Buffers alternate, so nobody writes into what
// another still reads: to fill one a worker must have met those who have left it.
struct Region {
    void* memory;
    int64_t rank, workers;
    double timeout;  // seconds

    Arrival* arrivals() const { return static_cast<Arrival*>(memory); }
    float* slot(int64_t buffer, int64_t of) const {
        return reinterpret_cast<float*>(arrivals() + workers) + (buffer * workers + of) * CHUNK;
    }
    int64_t next_buffer() const { return int64_t(arrivals()[rank].chunks++ & 1); }
};

inline int64_t region_bytes(int64_t workers) {
    return workers * int64_t(sizeof(Arrival)) + 2 * workers * CHUNK * int64_t(sizeof(float));
}

inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Who did not come, as 1 + rank: positive where that process is gone, negative where time is up; 0 when all came.
inline int64_t meet(const Region& region) {
    Arrival* arrivals = region.arrivals();
    const uint64_t meeting = arrivals[region.rank].meetings.load(std::memory_order_relaxed) + 1;
    arrivals[region.rank].meetings.store(meeting, std::memory_order_release);
    for (int64_t other = 0; other < region.workers; ++other) {
        const auto start = std::chrono::steady_clock::now();
        for (int tries = 0; arrivals[other].meetings.load(std::memory_order_acquire) < meeting; ++tries) {
            if (tries < SPINS) {
                pause_briefly();
            } else if (tries < SPINS + YIELDS) {
                sched_yield();
            } else {
                const timespec nap{0, NAP_NANOSECONDS};
                nanosleep(&nap, nullptr);
                if (tries % 1024 != 0) continue;  // a twentieth of a second and more
                if (kill(pid_t(arrivals[other].pid), 0) != 0 && errno == ESRCH) return 1 + other;
                const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
                if (waited.count() > region.timeout) return -(1 + other);
            }
        }
    }
    return 0;
}

// Many tensors, read or written as if they lay end to end.
class Tensors {
   public:
    Tensors(float* const* tensors, const int64_t* counts) : tensors_(tensors), counts_(counts) {}

    void read(float* to, int64_t count) {
        each_piece(count, [&](float* piece, int64_t size, int64_t done) { std::memcpy(to + done, piece, size * 4); });
    }
    void write(const float* from, int64_t count) {
        each_piece(count, [&](float* piece, int64_t size, int64_t done) { std::memcpy(piece, from + done, size * 4); });
    }

   private:
    template <typename F>
    void each_piece(int64_t count, F f) {
        for (int64_t done = 0; done < count;) {
            while (offset_ == *counts_) {
                ++tensors_, ++counts_, offset_ = 0;
            }
            const int64_t size = std::min(count - done, *counts_ - offset_);
            f(*tensors_ + offset_, size, done);
            offset_ += size, done += size;
        }
    }

    float* const* tensors_;
    const int64_t* counts_;
    int64_t offset_ = 0;
};

// Sums `total` floats in place, the same bits for every worker. Returns as `meet` does.
inline int64_t shared_sum(const Region& region, float* const* tensors, const int64_t* counts, int64_t total) {
    Tensors input(tensors, counts), output(tensors, counts);
    for (int64_t start = 0; start < total; start += CHUNK) {
        const int64_t size = std::min(CHUNK, total - start), buffer = region.next_buffer();
        input.read(region.slot(buffer, region.rank), size);
        if (const int64_t missing = meet(region)) return missing;
        float* sum = region.slot(buffer, 0);
        if (size <= SHORT) {
            float own[SHORT];
            std::memcpy(own, sum, size * 4);
            for (int64_t other = 1; other < region.workers; ++other) {
                const float* slot = region.slot(buffer, other);
                for (int64_t i = 0; i < size; ++i) own[i] += slot[i];
            }
            output.write(own, size);
            continue;
        }
        const int64_t first = size * region.rank / region.workers, last = size * (region.rank + 1) / region.workers;
        for (int64_t other = 1; other < region.workers; ++other) {
            const float* slot = region.slot(buffer, other);
            for (int64_t i = first; i < last; ++i) sum[i] += slot[i];
        }
        if (const int64_t missing = meet(region)) return missing;
        output.write(sum, size);
    }
    return 0;
}

// Lays everyone's `count` floats end to end in `gathered`, in rank order. Returns as `meet` does.
inline int64_t shared_gather(const Region& region, const float* values, int64_t count, float* gathered) {
    for (int64_t start = 0; start < count; start += CHUNK) {
        const int64_t size = std::min(CHUNK, count - start), buffer = region.next_buffer();
        std::memcpy(region.slot(buffer, region.rank), values + start, size * 4);
        if (const int64_t missing = meet(region)) return missing;
        for (int64_t other = 0; other < region.workers; ++other) {
            std::memcpy(gathered + other * count + start, region.slot(buffer, other), size * 4);
        }
    }
    return 0;
}

}  // namespace electra
