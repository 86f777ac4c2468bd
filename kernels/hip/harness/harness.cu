// Runs the kernels' own source on an NVIDIA GPU, where a warp stands for a wave32, and judges every result by float64.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -DHIPPIHX_DOT=1 -x cu harness.cu -o harness && ./harness [matrix|small|speed]
//
// `matrix` is every shape, `small` a few of them for a memory checker, `speed` the decode of docs/measurements.md.
#include "../hippihx.hip"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        const cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error));    \
            exit(2);                                                                                     \
        }                                                                                                \
    } while (0)

struct Case {
    bool prefill = false;
    int head_dim = 128, q_heads = 32, kv_heads = 8, block = 16, splits = 2, window = 0;
    bool causal = true;
    std::vector<int> lengths, fresh;
    int pack = 8;          // innermost extent of K and V
    bool v_swapped = false;  // V's innermost two axes swapped in memory
    bool hostile = false;  // block numbers, lengths and offsets that no engine writes
    float spread = 1.0f;   // standard deviation of K and Q
};

static std::vector<float> half_values() {
    std::vector<float> values(65536);
    for (int bits = 0; bits < 65536; bits++) values[bits] = __half2float(__ushort_as_half((uint16_t)bits));
    return values;
}
static const std::vector<float> HALVES = half_values();
static float from_half(uint16_t bits) { return HALVES[bits]; }
static uint16_t to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }

// Guard words on both sides of everything that is allocated; a kernel that leaves its bounds changes or meets them.
template <typename T>
struct Guarded {
    static constexpr size_t GUARD = 4096;
    size_t count;
    char *base = nullptr;
    explicit Guarded(const std::vector<T> &host) : count(host.size()) {
        CHECK(cudaMalloc(&base, count * sizeof(T) + 2 * GUARD));
        CHECK(cudaMemset(base, 0xA5, count * sizeof(T) + 2 * GUARD));
        CHECK(cudaMemcpy(data(), host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Guarded() { cudaFree(base); }
    T *data() const { return (T *)(base + GUARD); }
    std::vector<T> read() const {
        std::vector<T> host(count);
        CHECK(cudaMemcpy(host.data(), data(), count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
    bool intact() const {
        std::vector<unsigned char> edge(GUARD);
        for (const char *at : {base, base + GUARD + count * sizeof(T)}) {
            CHECK(cudaMemcpy(edge.data(), at, GUARD, cudaMemcpyDeviceToHost));
            for (unsigned char byte : edge)
                if (byte != 0xA5) return false;
        }
        return true;
    }
};

// Strides of K and V: block, head, group, token, lane.
struct Strides {
    i64 at[5];
};

static Strides strides(const Case &c, bool swapped) {
    const i64 x = c.pack, groups = c.head_dim / x, block = c.block;
    Strides s;
    s.at[0] = c.kv_heads * groups * block * x;
    s.at[1] = groups * block * x;
    s.at[2] = block * x;
    s.at[3] = swapped ? 1 : x;
    s.at[4] = swapped ? block : 1;
    return s;
}

struct Errors {
    double worst = 0, off = 0, norm = 0;
    bool guards = true, untouched = true;
};

static Errors run(const Case &c, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int sequences = (int)c.lengths.size();
    int rows = 0;
    std::vector<int> cu = {0};
    for (int s = 0; s < sequences; s++) {
        rows += c.prefill ? c.fresh[s] : 1;
        cu.push_back(rows);
    }
    const int spare_rows = c.prefill ? 3 : 0;  // rows behind the last sequence stay untouched
    const int all_rows = rows + spare_rows;
    int longest = 1;
    for (int length : c.lengths) longest = std::max(longest, length);
    const int pages = (longest + c.block - 1) / c.block;
    const int blocks = sequences * pages + 1;
    std::vector<int> table(sequences * pages);
    std::vector<int> order(blocks);
    for (int i = 0; i < blocks; i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i = 0; i < table.size(); i++) table[i] = order[i];

    const Strides ks = strides(c, false), vs = strides(c, c.v_swapped);
    const size_t cache = (size_t)blocks * ks.at[0];
    const uint16_t nan = 0x7e00;
    std::vector<uint16_t> k(cache, nan), v(cache, nan), q((size_t)all_rows * c.q_heads * c.head_dim);
    auto at = [&](const Strides &s, int block, int head, int d, int token) {
        return block * s.at[0] + head * s.at[1] + (d / c.pack) * s.at[2] + token * s.at[3] + (d % c.pack) * s.at[4];
    };
    for (int s = 0; s < sequences; s++)
        for (int j = 0; j < c.lengths[s]; j++)
            for (int h = 0; h < c.kv_heads; h++)
                for (int d = 0; d < c.head_dim; d++) {
                    const int block = table[s * pages + j / c.block];
                    k[at(ks, block, h, d, j % c.block)] = to_half(normal(random) * c.spread);
                    v[at(vs, block, h, d, j % c.block)] = to_half(normal(random));
                }
    for (auto &element : q) element = to_half(normal(random) * c.spread);
    std::vector<int> lengths = c.lengths;
    std::vector<int> device_table = table, device_cu = cu, device_lengths = lengths;
    if (c.hostile) {
        const int bad[] = {-1, blocks, INT32_MAX, INT32_MIN, blocks + 7};
        for (size_t i = 0; i < device_table.size(); i += 3) device_table[i] = bad[i % 5];
        for (size_t i = 0; i < device_lengths.size(); i += 2) device_lengths[i] = i % 4 ? INT32_MIN : INT32_MAX;
        if (c.prefill)
            for (size_t i = 1; i < device_cu.size(); i += 2) device_cu[i] = i % 4 == 1 ? INT32_MAX : -77;
    }

    const float scale = 1.0f / sqrtf((float)c.head_dim);
    const size_t partials = (size_t)all_rows * c.q_heads * c.splits;
    // Outputs and scratch are poisoned: what is not written shows.
    std::vector<uint16_t> poison(q.size(), 0x7d11);
    std::vector<float> scratch_o(partials * c.head_dim, NAN), scratch_m(partials, NAN), scratch_l(partials, NAN);
    Guarded<uint16_t> dq(q), dk(k), dv(v), dout(poison);
    Guarded<int> dtable(device_table), dlengths(device_lengths), dcu(device_cu);
    Guarded<float> dpo(scratch_o), dpm(scratch_m), dpl(scratch_l);
    int shift = 0;
    while ((1 << shift) < c.pack) shift++;
    const bool k_wide = c.pack % 8 == 0;
    const u32 v_path = c.v_swapped ? (c.block % 8 == 0 ? 2 : 0) : (c.pack % 8 == 0 ? 1 : 0);
    const i64 capacity = std::min<i64>((i64)pages * c.block, INT32_MAX);
    const int group = c.q_heads / c.kv_heads;
    const dim3 grid = c.prefill ? dim3((all_rows + 15) / 16, c.q_heads, c.splits)
                                : dim3(all_rows, c.kv_heads * ((group + 7) / 8), c.splits);
#define ARGUMENTS                                                                                                          \
    (const u16 *)dq.data(), (const u16 *)dk.data(), (const u16 *)dv.data(), dtable.data(), dlengths.data(),               \
        c.prefill ? dcu.data() : nullptr, (u16 *)dout.data(), dpo.data(), dpm.data(), dpl.data(), ks.at[0], ks.at[1],     \
        ks.at[2], ks.at[3], ks.at[4], vs.at[0], vs.at[1], vs.at[2], vs.at[3], vs.at[4], (i64)pages, (u32)blocks,          \
        (u32)all_rows, (u32)sequences, (u32)capacity, (u32)c.block, (u32)c.q_heads, (u32)c.kv_heads, (u32)shift,          \
        (u32)c.splits, (u32)c.window, (u32)c.causal, scale *1.4426950408889634f, (u32)k_wide, v_path
    if (c.prefill && c.head_dim == 128) hippihx_fa_fdot2_prefill_d128<<<grid, 128>>>(ARGUMENTS);
    if (c.prefill && c.head_dim == 256) hippihx_fa_fdot2_prefill_d256<<<grid, 128>>>(ARGUMENTS);
    if (!c.prefill && c.head_dim == 128) hippihx_fa_fdot2_decode_d128<<<grid, 128>>>(ARGUMENTS);
    if (!c.prefill && c.head_dim == 256) hippihx_fa_fdot2_decode_d256<<<grid, 128>>>(ARGUMENTS);
    CHECK(cudaGetLastError());
    if (c.splits > 1) {
        if (c.head_dim == 128) hippihx_fa_fdot2_combine_d128<<<dim3(all_rows, c.q_heads), 128>>>(ARGUMENTS);
        if (c.head_dim == 256) hippihx_fa_fdot2_combine_d256<<<dim3(all_rows, c.q_heads), 128>>>(ARGUMENTS);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    const std::vector<uint16_t> out = dout.read();

    Errors errors;
    errors.guards = dq.intact() && dk.intact() && dv.intact() && dout.intact() && dtable.intact() && dlengths.intact() &&
                    dcu.intact() && dpo.intact() && dpm.intact() && dpl.intact();
    if (c.hostile) return errors;  // in bounds is all that is asked
    for (size_t i = (size_t)rows * c.q_heads * c.head_dim; i < out.size(); i++) errors.untouched &= out[i] == 0x7d11;

    // The definition, a row a task.
    const int tasks = rows;
    std::vector<Errors> partial(tasks);
    std::vector<std::thread> threads;
    const int width = std::max(1u, std::thread::hardware_concurrency());
    for (int w = 0; w < width; w++)
        threads.emplace_back([&, w] {
            std::vector<double> weight;
            std::vector<double> sum(c.head_dim);
            for (int row = w; row < tasks; row += width) {
                int s = row;
                if (c.prefill)
                    for (s = 0; row >= cu[s + 1]; s++) {}
                const int length = lengths[s];
                const int position = c.prefill ? length - (cu[s + 1] - cu[s]) + (row - cu[s]) : length - 1;
                for (int head = 0; head < c.q_heads; head++) {
                    const uint16_t *query = &q[((size_t)row * c.q_heads + head) * c.head_dim];
                    double peak = -INFINITY, total = 0;
                    weight.assign(length, -INFINITY);
                    for (int j = 0; j < length; j++) {
                        const bool causal = !c.prefill || !c.causal || j <= position;
                        if (!causal || (c.window > 0 && j <= position - c.window)) continue;
                        const int block = table[s * pages + j / c.block];
                        double dot = 0;
                        for (int d = 0; d < c.head_dim; d++)
                            dot += (double)from_half(query[d]) * from_half(k[at(ks, block, head / group, d, j % c.block)]);
                        weight[j] = dot * scale;
                        peak = std::max(peak, weight[j]);
                    }
                    std::fill(sum.begin(), sum.end(), 0.0);
                    for (int j = 0; j < length; j++) {
                        if (weight[j] == -INFINITY) continue;
                        const double p = exp(weight[j] - peak);
                        total += p;
                        const int block = table[s * pages + j / c.block];
                        for (int d = 0; d < c.head_dim; d++) sum[d] += p * from_half(v[at(vs, block, head / group, d, j % c.block)]);
                    }
                    for (int d = 0; d < c.head_dim; d++) {
                        const double expected = total > 0 ? sum[d] / total : 0.0;
                        const double found = from_half(out[((size_t)row * c.q_heads + head) * c.head_dim + d]);
                        const double error = fabs(found - expected);
                        Errors &e = partial[row];
                        if (!(error <= e.worst)) e.worst = std::isnan(error) ? INFINITY : error;
                        e.off += error * error;
                        e.norm += expected * expected;
                    }
                }
            }
        });
    for (auto &thread : threads) thread.join();
    for (const Errors &e : partial) {
        errors.worst = std::max(errors.worst, e.worst);
        errors.off += e.off;
        errors.norm += e.norm;
    }
    return errors;
}

struct Tally {
    int cases = 0, failed = 0;
    double worst = 0, frobenius = 0;
    void add(const Case &c, const Errors &e) {
        const double relative = e.norm > 0 ? sqrt(e.off / e.norm) : sqrt(e.off);
        const bool good = e.guards && e.untouched && e.worst <= 2e-3 && relative <= 1e-3;
        cases++;
        worst = std::max(worst, e.worst);
        frobenius = std::max(frobenius, relative);
        if (good) return;
        failed++;
        printf("FAILED %s D %d heads %d/%d block %d splits %d window %d causal %d pack %d swapped %d hostile %d length[0] %d: worst %g "
               "frobenius %g guards %d untouched %d\n",
               c.prefill ? "prefill" : "decode", c.head_dim, c.q_heads, c.kv_heads, c.block, c.splits, c.window, c.causal, c.pack,
               c.v_swapped, c.hostile, c.lengths[0], e.worst, relative, e.guards, e.untouched);
    }
};

static void matrix(bool small) {
    Tally tally;
    unsigned seed = 1;
    const std::vector<std::vector<int>> lengths =
        small ? std::vector<std::vector<int>>{{0, 1, 17, 70}}
              : std::vector<std::vector<int>>{{0}, {1}, {15}, {16}, {17}, {64}, {1000}, {4096}, {0, 1, 15, 16, 17, 64, 1000, 333}};
    const int heads[][2] = {{8, 8}, {32, 8}, {32, 4}, {28, 4}, {40, 8}, {12, 4}, {20, 1}};
    for (int prefill = 0; prefill < 2; prefill++)
        for (int head_dim : {128, 256})
            for (const auto &ls : lengths)
                for (int block : {1, 16, 32, 17})
                    for (const auto &layout : {std::pair<int, bool>{8, false}, {1, false}, {8, true}, {1, true}}) {
                        // The rest of the matrix rotates: every value meets every length, head size, mode and layout class.
                        const unsigned turn = seed;
                        Case c;
                        c.prefill = prefill;
                        c.head_dim = head_dim;
                        c.lengths = ls;
                        c.block = block;
                        c.pack = layout.first;
                        c.v_swapped = layout.second;
                        const int *h = heads[turn % 7];
                        c.q_heads = h[0];
                        c.kv_heads = h[1];
                        c.window = (int[]){0, 1, 8, 100}[turn / 7 % 4];
                        c.splits = (int[]){1, 2, 7, 16}[turn / 3 % 4];
                        c.causal = turn / 5 % 2;
                        for (int length : ls) c.fresh.push_back(std::min(length, (int)(turn % 3 == 0 ? 1 : turn % 3 == 1 ? 33 : 100)));
                        tally.add(c, run(c, seed++));
                        if (ls.size() > 1) {
                            c.hostile = true;
                            tally.add(c, run(c, seed++));
                        }
                    }
    // Every head ratio, window and split at one length each, and very negative logits.
    for (int prefill = 0; prefill < 2 && !small; prefill++)
        for (const auto &h : heads)
            for (int window : {0, 1, 8, 100})
                for (int splits : {1, 2, 7, 16}) {
                    Case c;
                    c.prefill = prefill;
                    c.q_heads = h[0];
                    c.kv_heads = h[1];
                    c.window = window;
                    c.splits = splits;
                    c.lengths = {130, 16};
                    c.fresh = {40, 16};
                    tally.add(c, run(c, seed++));
                }
    printf("%s: %d cases, %d failed, worst error %.3g (allowed 2e-3), worst Frobenius %.3g (allowed 1e-3)\n", small ? "small" : "matrix",
           tally.cases, tally.failed, tally.worst, tally.frobenius);
    if (tally.failed) exit(1);
}

static double median(std::vector<float> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// Bytes a second of decode at batch 64, context 8192, 32/8 heads, D 128, against a device-to-device copy in the same run.
static void speed() {
    const int batch = 64, context = 8192, q_heads = 32, kv_heads = 8, D = 128, block = 16, pages = context / block;
    const i64 per_block = (i64)kv_heads * D * block;
    const size_t elements = (size_t)batch * pages * per_block;
    u16 *q, *k, *v, *out, *spare;
    float *po, *pm, *pl;
    int *table, *lengths;
    CHECK(cudaMalloc(&k, elements * 2));
    CHECK(cudaMalloc(&v, elements * 2));
    CHECK(cudaMalloc(&spare, elements * 2));
    CHECK(cudaMalloc(&q, (size_t)batch * q_heads * D * 2));
    CHECK(cudaMalloc(&out, (size_t)batch * q_heads * D * 2));
    std::vector<u16> noise(1 << 22);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (auto &element : noise) element = to_half(normal(random));
    for (size_t at = 0; at < elements; at += noise.size()) {
        const size_t count = std::min(noise.size(), elements - at);
        CHECK(cudaMemcpy(k + at, noise.data(), count * 2, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(v + at, noise.data(), count * 2, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpy(q, noise.data(), (size_t)batch * q_heads * D * 2, cudaMemcpyHostToDevice));
    std::vector<int> order((size_t)batch * pages), full(batch, context);
    for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
    std::shuffle(order.begin(), order.end(), random);
    CHECK(cudaMalloc(&table, order.size() * 4));
    CHECK(cudaMalloc(&lengths, batch * 4));
    CHECK(cudaMemcpy(table, order.data(), order.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(lengths, full.data(), batch * 4, cudaMemcpyHostToDevice));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const int rounds = 21;
    const double bytes = 2.0 * elements * 2;  // K and V, read once
    for (int splits : {1, 2, 4, 8}) {
        const size_t partials = (size_t)batch * q_heads * splits;
        CHECK(cudaMalloc(&po, partials * D * 4));
        CHECK(cudaMalloc(&pm, partials * 4));
        CHECK(cudaMalloc(&pl, partials * 4));
        for (int swapped = 0; swapped < 2; swapped++) {
            std::vector<float> copies, decodes;
            for (int round = 0; round < rounds; round++) {
                float ms;
                CHECK(cudaEventRecord(begin));
                CHECK(cudaMemcpyAsync(spare, k, elements * 2, cudaMemcpyDeviceToDevice));
                CHECK(cudaEventRecord(end));
                CHECK(cudaEventSynchronize(end));
                CHECK(cudaEventElapsedTime(&ms, begin, end));
                copies.push_back(ms);
                CHECK(cudaEventRecord(begin));
#define SPEED_ARGUMENTS                                                                                                 \
    q, k, v, table, lengths, nullptr, out, po, pm, pl, per_block, (i64)D *block, (i64)8 * block, (i64)8, (i64)1,         \
        per_block, (i64)D *block, (i64)8 * block, (i64)(swapped ? 1 : 8), (i64)(swapped ? block : 1), (i64)pages,        \
        (u32)(batch * pages), (u32)batch, (u32)batch, (u32)context, (u32)block, (u32)q_heads, (u32)kv_heads, 3u,         \
        (u32)splits, 0u, 0u, 0.1275f, 1u, (u32)(swapped ? 2 : 1)
                hippihx_fa_fdot2_decode_d128<<<dim3(batch, kv_heads, splits), 128>>>(SPEED_ARGUMENTS);
                if (splits > 1) hippihx_fa_fdot2_combine_d128<<<dim3(batch, q_heads), 128>>>(SPEED_ARGUMENTS);
                CHECK(cudaEventRecord(end));
                CHECK(cudaEventSynchronize(end));
                CHECK(cudaEventElapsedTime(&ms, begin, end));
                decodes.push_back(ms);
            }
            const double copy = 2.0 * elements * 2 / median(copies) / 1e6, decode = bytes / median(decodes) / 1e6;
            printf("speed: splits %d, V %s: decode %.3f ms, %.0f GB/s; copy %.0f GB/s; fraction %.3f\n", splits,
                   swapped ? "along tokens" : "along depth", median(decodes), decode, copy, decode / copy);
        }
        cudaFree(po);
        cudaFree(pm);
        cudaFree(pl);
    }
}

int main(int argc, char **argv) {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("device: %s\n", device.name);
    const std::string what = argc > 1 ? argv[1] : "matrix";
    if (what == "matrix") matrix(false);
    if (what == "small") matrix(true);
    if (what == "speed") speed();
    return 0;
}
