// A window of a Neural Turing Machine on the processor, one call forward and one back.
//
// The equations, their order and their derivatives are those of steps.py, which is the reference.
// What differs is how they are laid out: a memory is stored W x N, so that a vector of processor
// words runs over the slots; everything between two products of matrices happens on one sample
// while its memory is in the nearest cache.
//
// Sizes: T steps, B samples, N slots of W numbers, H heads of which R read and U write, S taps of
// the shift, C numbers of the controller, G of its sums, K = R W (+ C) that it sees beside the
// input, P numbers of the heads. "d" before a name is the derivative by what the name stands for.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace {

using at::Tensor;
using at::vec::Vectorized;
using std::int64_t;
using std::optional;
using std::vector;

constexpr double COSINE_EPSILON = 1e-8;
constexpr double LOG_EPSILON = 1e-12;
constexpr double SOFTPLUS_THRESHOLD = 20;
// How many multiplications make it worth to wake another thread; below, all stays on this one.
constexpr int64_t WORTH_A_THREAD = int64_t(1) << 23;
// Vectors in a panel of columns, and rows that are multiplied by it at once: as many as there are
// registers for.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int PANEL = 4, ROWS = 6;
#else
constexpr int PANEL = 2, ROWS = 4;
#endif

// While it lives, this thread takes numbers too small for their exponent for 0: a sharp weighting is
// full of them, and each would cost a hundred times as much as another number.
class FlushTiny {
#if defined(__SSE2__)
 public:
  FlushTiny() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushTiny() { _mm_setcsr(before_); }
  FlushTiny(const FlushTiny&) = delete;
  FlushTiny& operator=(const FlushTiny&) = delete;

 private:
  unsigned before_;
#endif
};

// ---- vectors ------------------------------------------------------------------------------------

template <class F>
using Vec = Vectorized<F>;

template <class F>
constexpr int64_t LANES = Vec<F>::size();

// Calls body(place, count) for each vector of n numbers; the last may hold fewer than all lanes.
template <class F, class Body>
inline void over(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + LANES<F> <= n; i += LANES<F>) body(i, LANES<F>);
  if (i < n) body(i, n - i);
}

template <class F>
inline Vec<F> load(const F* from, int64_t count) {
  return count == LANES<F> ? Vec<F>::loadu(from) : Vec<F>::loadu(from, count);
}

template <class F>
inline void store(F* to, const Vec<F>& value, int64_t count) {
  if (count == LANES<F>) value.store(to);
  else value.store(to, int(count));
}

// The value in the first lanes, and another in those past the end.
template <class F>
inline Vec<F> only(const Vec<F>& value, int64_t count, F other = F(0)) {
  return count == LANES<F> ? value : Vec<F>::set(Vec<F>(other), value, count);
}

template <class F>
inline F sum(const Vec<F>& value) {
  return at::vec::vec_reduce_all<F>([](Vec<F>& a, Vec<F>& b) { return a + b; }, value);
}

template <class F>
inline F dot(const F* a, const F* b, int64_t n) {
  Vec<F> total(F(0));
  over<F>(n, [&](int64_t i, int64_t count) {
    total = at::vec::fmadd(load(a + i, count), load(b + i, count), total);
  });
  return sum(total);
}

template <class F>
inline Vec<F> sigmoid(const Vec<F>& x) {
  return Vec<F>(F(1)) / (Vec<F>(F(1)) + x.neg().exp());
}

template <class F>
inline F sigmoid(F x) {
  return F(1) / (F(1) + std::exp(-x));
}

template <class F>
inline F softplus(F x) {
  return x > F(SOFTPLUS_THRESHOLD) ? x : std::log1p(std::exp(x));
}

// The derivative of softplus, from its result.
template <class F>
inline F softplus_slope(F result) {
  return result > F(SOFTPLUS_THRESHOLD) ? F(1) : -std::expm1(-result);
}

// In place; a NaN, or an infinity as the greatest, makes all of it NaN, as in torch.
template <class F>
inline void softmax(F* x, int64_t n) {
  Vec<F> most(-std::numeric_limits<F>::infinity());
  over<F>(n, [&](int64_t i, int64_t count) {
    most = at::vec::maximum(
        most, only(load(x + i, count), count, -std::numeric_limits<F>::infinity()));
  });
  const Vec<F> top(at::vec::vec_reduce_all<F>(
      [](Vec<F>& a, Vec<F>& b) { return at::vec::maximum(a, b); }, most));
  Vec<F> total(F(0));
  over<F>(n, [&](int64_t i, int64_t count) {
    const Vec<F> value = (load(x + i, count) - top).exp();
    total = total + only(value, count);
    store(x + i, value, count);
  });
  const Vec<F> scale(F(1) / sum(total));
  over<F>(n, [&](int64_t i, int64_t count) { store(x + i, load(x + i, count) * scale, count); });
}

// dx = y (dy - sum(y dy)), where y is a softmax of x; to may be dy.
template <class F>
inline void softmax_back(const F* y, const F* dy, F* to, int64_t n) {
  const Vec<F> mean(dot(y, dy, n));
  over<F>(n, [&](int64_t i, int64_t count) {
    store(to + i, load(y + i, count) * (load(dy + i, count) - mean), count);
  });
}

// ---- products of matrices -----------------------------------------------------------------------

// A matrix (depth x columns) in panels of columns, the last one filled up with zeros.
template <class F>
struct Packed {
  static constexpr int64_t WIDTH = PANEL * LANES<F>;
  int64_t depth, columns;
  vector<F> data;

  // Element (k, n) is at from[k * row + n * column].
  Packed(const F* from, int64_t depth, int64_t columns, int64_t row, int64_t column)
      : depth(depth), columns(columns), data((columns + WIDTH - 1) / WIDTH * WIDTH * depth) {
    for (int64_t n = 0; n < columns; n++) {
      F* to = data.data() + n / WIDTH * WIDTH * depth + n % WIDTH;
      for (int64_t k = 0; k < depth; k++) to[k * WIDTH] = from[k * row + n * column];
    }
  }
};

// ROW rows of out += a times one panel.
template <class F, int ROW>
inline void multiply_block(
    F* out, int64_t out_row, const F* a, int64_t a_row, const F* panel, int64_t depth,
    int64_t columns) {
  // One row alone would wait for its own sums: its terms go to two of them in turn.
  constexpr int TURNS = ROW == 1 ? 2 : 1;
  Vec<F> sums[TURNS][ROW][PANEL];
  for (auto& turn : sums)
    for (auto& row : turn)
      for (auto& each : row) each = Vec<F>(F(0));
  const auto term = [&](int64_t k, int turn) {
    Vec<F> right[PANEL];
    for (int p = 0; p < PANEL; p++)
      right[p] = Vec<F>::loadu(panel + k * Packed<F>::WIDTH + p * LANES<F>);
    for (int r = 0; r < ROW; r++) {
      const Vec<F> left(a[r * a_row + k]);
      for (int p = 0; p < PANEL; p++)
        sums[turn][r][p] = at::vec::fmadd(left, right[p], sums[turn][r][p]);
    }
  };
  int64_t k = 0;
  for (; k + TURNS <= depth; k += TURNS)
    for (int turn = 0; turn < TURNS; turn++) term(k + turn, turn);
  for (; k < depth; k++) term(k, 0);
  for (int r = 0; r < ROW; r++) {
    for (int p = 0; p < PANEL; p++) {
      const int64_t count = std::min<int64_t>(LANES<F>, columns - p * LANES<F>);
      if (count <= 0) break;
      F* to = out + r * out_row + p * LANES<F>;
      Vec<F> total = sums[0][r][p];
      if (TURNS == 2) total = total + sums[TURNS - 1][r][p];
      store(to, load(to, count) + total, count);
    }
  }
}

// out (rows x columns) += a (rows x depth) times the packed matrix; all rows contiguous.
template <class F>
void multiply(F* out, const F* a, int64_t rows, const Packed<F>& b) {
  constexpr int64_t WIDTH = Packed<F>::WIDTH;
  const int64_t panels = (b.columns + WIDTH - 1) / WIDTH;
  const int64_t work = std::max<int64_t>(1, rows * b.depth * WIDTH);
  at::parallel_for(0, panels, std::max<int64_t>(1, WORTH_A_THREAD / work), [&](int64_t p, int64_t end) {
    const FlushTiny flush;
    for (; p < end; p++) {
      const F* panel = b.data.data() + p * WIDTH * b.depth;
      const int64_t columns = b.columns - p * WIDTH;
      const auto block = [&](auto size, int64_t r) {
        multiply_block<F, decltype(size)::value>(
            out + r * b.columns + p * WIDTH, b.columns, a + r * b.depth, b.depth, panel, b.depth,
            columns);
      };
      int64_t r = 0;
      for (; r + ROWS <= rows; r += ROWS) block(std::integral_constant<int, ROWS>(), r);
      switch (rows - r) {
        case 5: block(std::integral_constant<int, 5>(), r); break;
        case 4: block(std::integral_constant<int, 4>(), r); break;
        case 3: block(std::integral_constant<int, 3>(), r); break;
        case 2: block(std::integral_constant<int, 2>(), r); break;
        case 1: block(std::integral_constant<int, 1>(), r); break;
        default: break;
      }
    }
  });
}

// ---- sizes and what a sample's step needs -------------------------------------------------------

struct Sizes {
  int64_t T, B, N, W, H, R, U, S, C, G, K, P, reach, row;
  bool lstm, squash, clipped;
  double clip;

  int64_t erase(int64_t u) const { return H * row + u * 2 * W; }
  int64_t add(int64_t u) const { return erase(u) + W; }
};

// How many samples a thread takes at once.
int64_t grain(const Sizes& z) {
  return std::max<int64_t>(1, WORTH_A_THREAD / (8 * std::max<int64_t>(1, z.N * z.W * (z.H + 2))));
}

// Where a step's numbers begin, for sample 0; what is not kept stays at one place.
template <class F>
struct Tape {
  F *gates, *cells, *raw, *params, *scale, *scores, *found, *shifted, *after, *memories;
};

// Buffers for one sample.
template <class F>
struct Scratch {
  vector<F> padded, asked, first, second, third, products;

  explicit Scratch(const Sizes& z)
      : padded(z.N + 2 * z.reach), asked(z.H * z.W), first(z.H * z.N), second(z.N + 2 * z.reach),
        third(z.N), products(3 * z.U * LANES<F>) {}
};

// The numbers of the heads, brought into their ranges.
template <class F>
void activate(const Sizes& z, const F* raw, F* to) {
  const auto clip = [&](F x) {
    return !z.clipped ? x : x < F(-z.clip) ? F(-z.clip) : x > F(z.clip) ? F(z.clip) : x;
  };
  const auto squash = [&](int64_t begin) {
    over<F>(z.W, [&](int64_t i, int64_t count) {
      Vec<F> x = load(to + begin + i, count);
      store(to + begin + i, x.tanh(), count);
    });
  };
  for (int64_t i = 0; i < z.P; i++) to[i] = clip(raw[i]);
  for (int64_t h = 0; h < z.H; h++) {
    F* head = to + h * z.row;
    if (z.squash) squash(h * z.row);
    head[z.W] = softplus(head[z.W]);
    head[z.W + 1] = F(1) + softplus(head[z.W + 1]);
    head[z.W + 2] = sigmoid(head[z.W + 2]);
    softmax(head + z.W + 3, z.S);
  }
  for (int64_t u = 0; u < z.U; u++) {
    over<F>(z.W, [&](int64_t i, int64_t count) {
      F* at = to + z.erase(u) + i;
      store(at, sigmoid(load(at, count)), count);
    });
    if (z.squash) squash(z.add(u));
  }
}

// Equation 7 into a row that goes round at both ends: g found + (1 - g) before, never negative.
template <class F>
void interpolate(const Sizes& z, const F* before, const F* found, F gate, F* padded) {
  F* middle = padded + z.reach;
  const bool near = gate < F(0.5);
  const Vec<F> step(near ? gate : gate - F(1));
  over<F>(z.N, [&](int64_t i, int64_t count) {
    const Vec<F> a = load(before + i, count), b = load(found + i, count);
    store(middle + i, at::vec::fmadd(step, b - a, near ? a : b), count);
  });
}

// Fill the ends of a row that goes round.
template <class F>
void go_round(const Sizes& z, F* padded) {
  F* middle = padded + z.reach;
  for (int64_t i = 0; i < z.reach; i++) {
    middle[z.N + i] = middle[i % z.N];
    middle[-1 - i] = middle[z.N - 1 - i % z.N];
  }
}

// to[n] = sum over j of taps[j] row[n + j].
template <class F>
void convolve(const Sizes& z, const F* row, const F* taps, int64_t step, F* to) {
  over<F>(z.N, [&](int64_t i, int64_t count) {
    Vec<F> total(F(0));
    for (int64_t j = 0; j < z.S; j++)
      total = at::vec::fmadd(Vec<F>(taps[j * step]), load(row + i + j, count), total);
    store(to + i, total, count);
  });
}

// What is asked of the memory: the key at length one, times the strength.
template <class F>
void ask(const Sizes& z, const F* head, F* asked) {
  const F scale = F(1) / std::sqrt(dot(head, head, z.W) + F(COSINE_EPSILON));
  const Vec<F> factor(head[z.W] * scale);
  over<F>(z.W, [&](int64_t i, int64_t count) {
    store(asked + i, load(head + i, count) * factor, count);
  });
}

// Rows that are summed over a memory at once.
constexpr int TOGETHER = 3;

// For GROUP heads from h on, the sums over w of asked[h][w] memory[w][n], for a block of the slots;
// NORM: for the first of them the squares of the memory in place of that.
template <class F, int GROUP, bool NORM>
inline void sum_rows(
    const Sizes& z, const F* memory, const F* asked, int64_t h, int64_t begin, F* const* out) {
  constexpr int WIDE = 4;
  const int64_t left = std::min<int64_t>(z.N - begin, WIDE * LANES<F>);
  Vec<F> sums[GROUP][WIDE];
  for (auto& row : sums)
    for (auto& each : row) each = Vec<F>(F(0));
  for (int64_t w = 0; w < z.W; w++) {
    for (int p = 0; p < WIDE; p++) {
      const int64_t count = std::min<int64_t>(left - p * LANES<F>, LANES<F>);
      if (count <= 0) break;
      const Vec<F> m = load(memory + w * z.N + begin + p * LANES<F>, count);
      for (int g = 0; g < GROUP; g++) {
        const Vec<F> factor = NORM && g == 0 ? m : Vec<F>(asked[(h + g - NORM) * z.W + w]);
        sums[g][p] = at::vec::fmadd(factor, m, sums[g][p]);
      }
    }
  }
  for (int g = 0; g < GROUP; g++)
    for (int p = 0; p < WIDE && p * LANES<F> < left; p++)
      store(out[g] + begin + p * LANES<F>, sums[g][p],
            std::min<int64_t>(left - p * LANES<F>, LANES<F>));
}

// One over the lengths of the memory's rows (N), and the cosines times the strengths (H x N). The
// memory is gone through as seldom as there are registers for: it may be larger than a cache.
template <class F>
void look_up(const Sizes& z, const F* memory, const F* asked, F* scale, F* scores) {
  for (int64_t begin = 0; begin < z.N; begin += 4 * LANES<F>) {
    F* out[TOGETHER];
    int64_t h = std::min<int64_t>(z.H, TOGETHER - 1);
    out[0] = scale;
    for (int64_t g = 0; g < h; g++) out[g + 1] = scores + g * z.N;
    if (h == 1) sum_rows<F, 2, true>(z, memory, asked, 0, begin, out);
    else sum_rows<F, 3, true>(z, memory, asked, 0, begin, out);
    while (h < z.H) {
      const int64_t group = std::min<int64_t>(z.H - h, TOGETHER);
      for (int64_t g = 0; g < group; g++) out[g] = scores + (h + g) * z.N;
      if (group == 1) sum_rows<F, 1, false>(z, memory, asked, h, begin, out);
      else if (group == 2) sum_rows<F, 2, false>(z, memory, asked, h, begin, out);
      else sum_rows<F, 3, false>(z, memory, asked, h, begin, out);
      h += group;
    }
  }
  over<F>(z.N, [&](int64_t i, int64_t count) {
    const Vec<F> one = Vec<F>(F(1)) / (load(scale + i, count) + Vec<F>(F(COSINE_EPSILON))).sqrt();
    store(scale + i, one, count);
    for (int64_t h = 0; h < z.H; h++)
      store(scores + h * z.N + i, load(scores + h * z.N + i, count) * one, count);
  });
}

// ---- one sample, one step -----------------------------------------------------------------------

// Address, read and write. The memory may be written where it stands.
template <class F>
void remember(
    const Sizes& z, const F* params, const F* memory, const F* before, const Tape<F>& to, F* next,
    F* reads, Scratch<F>& s) {
  F* asked = s.asked.data();
  for (int64_t h = 0; h < z.H; h++) ask(z, params + h * z.row, asked + h * z.W);
  look_up(z, memory, asked, to.scale, to.scores);
  for (int64_t h = 0; h < z.H; h++) {
    const F* head = params + h * z.row;
    F *found = to.found + h * z.N, *shifted = to.shifted + h * z.N, *after = to.after + h * z.N;
    std::copy_n(to.scores + h * z.N, z.N, found);
    softmax(found, z.N);
    interpolate(z, before + h * z.N, found, head[z.W + 2], s.padded.data());
    go_round(z, s.padded.data());
    convolve(z, s.padded.data(), head + z.W + 3, 1, shifted);
    const Vec<F> exponent(head[z.W + 1]);
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> value = load(shifted + i, count) + Vec<F>(F(LOG_EPSILON));
      store(after + i, exponent * value.log(), count);
    });
    softmax(after, z.N);
  }
  // A row is read before it is written: where it stands, if need be.
  const F* writing = to.after + z.R * z.N;
  for (int64_t w = 0; w < z.W; w++) {
    for (int64_t h = 0; h < z.R; h++)
      reads[h * z.W + w] = dot(to.after + h * z.N, memory + w * z.N, z.N);
    over<F>(z.N, [&](int64_t i, int64_t count) {
      Vec<F> value = load(memory + w * z.N + i, count), added(F(0));
      for (int64_t u = 0; u < z.U; u++) {
        const Vec<F> here = load(writing + u * z.N + i, count);
        value = at::vec::fmadd(Vec<F>(-params[z.erase(u) + w]) * here, value, value);
        added = at::vec::fmadd(Vec<F>(params[z.add(u) + w]), here, added);
      }
      store(next + w * z.N + i, value + added, count);
    });
  }
}

// Back through one step of one sample. dmemory (W x N) and dweightings (H x N) are those of the
// state after the step and become those of the state before it; draw is what the heads' numbers get.
template <class F>
void remember_back(
    const Sizes& z, const F* raw, const F* params, const F* memory, const F* before,
    const Tape<F>& tape, const F* dreads, F* dmemory, F* dweightings, F* draw, Scratch<F>& s) {
  const F* writing = tape.after + z.R * z.N;
  F* dwriting = dweightings + z.R * z.N;
  F *factor = s.products.data(), *ahead = factor + z.U * LANES<F>;
  F* erased = ahead + z.U * LANES<F>;
  // Equations 2 to 4, a row of the memory after the other.
  for (int64_t w = 0; w < z.W; w++) {
    for (int64_t u = 0; u < z.U; u++)
      draw[z.add(u) + w] = dot(writing + u * z.N, dmemory + w * z.N, z.N);
    std::fill_n(erased, z.U * LANES<F>, F(0));
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> m = load(memory + w * z.N + i, count);
      const Vec<F> d = load(dmemory + w * z.N + i, count);
      // The derivative by a factor is the product of all others; none is divided by, it may be 0.
      Vec<F> kept = d;
      for (int64_t u = 0; u < z.U; u++) {
        const Vec<F> here = load(writing + u * z.N + i, count);
        const Vec<F> each =
            at::vec::fmadd(Vec<F>(-params[z.erase(u) + w]), here, Vec<F>(F(1)));
        each.store(factor + u * LANES<F>);
        kept.store(ahead + u * LANES<F>);
        kept = kept * each;
      }
      Vec<F> behind = m;
      for (int64_t u = z.U - 1; u >= 0; u--) {
        const Vec<F> dfactor = Vec<F>::loadu(ahead + u * LANES<F>) * behind;
        behind = behind * Vec<F>::loadu(factor + u * LANES<F>);
        const Vec<F> here = load(writing + u * z.N + i, count);
        Vec<F> part = Vec<F>::loadu(erased + u * LANES<F>);
        part = at::vec::fmadd(here, dfactor, part);
        part.store(erased + u * LANES<F>);
        Vec<F> there = load(dwriting + u * z.N + i, count);
        there = at::vec::fmadd(Vec<F>(params[z.add(u) + w]), d, there);
        there = at::vec::fmadd(Vec<F>(-params[z.erase(u) + w]), dfactor, there);
        store(dwriting + u * z.N + i, there, count);
      }
      for (int64_t h = 0; h < z.R; h++) {
        const Vec<F> dread(dreads[h * z.W + w]);
        F* there = dweightings + h * z.N + i;
        store(there, at::vec::fmadd(dread, m, load(there, count)), count);
        kept = at::vec::fmadd(dread, load(tape.after + h * z.N + i, count), kept);
      }
      store(dmemory + w * z.N + i, kept, count);
    });
    for (int64_t u = 0; u < z.U; u++)
      draw[z.erase(u) + w] = -sum(Vec<F>::loadu(erased + u * LANES<F>));
  }
  F *shrink = s.third.data(), *dfound = s.first.data(), *asked = s.asked.data();
  std::fill_n(shrink, z.N, F(0));
  for (int64_t h = 0; h < z.H; h++) {
    const F* head = params + h * z.row;
    const F *found = tape.found + h * z.N, *shifted = tape.shifted + h * z.N;
    const F *after = tape.after + h * z.N, *old = before + h * z.N;
    F *dhead = draw + h * z.row, *dw = dweightings + h * z.N;
    // Equation 9.
    softmax_back(after, dw, dw, z.N);
    const Vec<F> exponent(head[z.W + 1]);
    Vec<F> dsharpen(F(0));
    F* dshifted = s.second.data() + z.reach;
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> value = load(shifted + i, count) + Vec<F>(F(LOG_EPSILON));
      const Vec<F> d = load(dw + i, count);
      dsharpen = dsharpen + only(d * value.log(), count);
      store(dshifted + i, exponent * d / value, count);
    });
    dhead[z.W + 1] = sum(dsharpen) * softplus_slope(head[z.W + 1] - F(1));
    // Equation 8.
    const F gate = head[z.W + 2];
    interpolate(z, old, found, gate, s.padded.data());
    go_round(z, s.padded.data());
    F* dtaps = dhead + z.W + 3;
    for (int64_t j = 0; j < z.S; j++) dtaps[j] = dot(dshifted, s.padded.data() + j, z.N);
    softmax_back(head + z.W + 3, dtaps, dtaps, z.S);
    go_round(z, s.second.data());
    F* dgated = s.padded.data();
    convolve(z, s.second.data(), head + z.W + 2 + z.S, -1, dgated);
    // Equation 7.
    Vec<F> dgate(F(0));
    F* df = dfound + h * z.N;
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> d = load(dgated + i, count);
      dgate = at::vec::fmadd(d, load(found + i, count) - load(old + i, count), dgate);
      const Vec<F> part = d * Vec<F>(gate);
      store(df + i, part, count);
      store(dw + i, d - part, count);
    });
    dhead[z.W + 2] = sum(dgate) * gate * (F(1) - gate);
    // Equations 5 and 6, as far as one head goes.
    softmax_back(found, df, df, z.N);
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> scale = load(tape.scale + i, count), d = load(df + i, count);
      const Vec<F> score = load(tape.scores + h * z.N + i, count);
      store(shrink + i, at::vec::fmadd(d * score, scale * scale, load(shrink + i, count)), count);
      store(df + i, d * scale, count);
    });
    ask(z, head, asked + h * z.W);
  }
  for (int64_t w = 0; w < z.W; w++) {
    for (int64_t h = 0; h < z.H; h++)
      draw[h * z.row + w] = dot(dfound + h * z.N, memory + w * z.N, z.N);
    over<F>(z.N, [&](int64_t i, int64_t count) {
      const Vec<F> m = load(memory + w * z.N + i, count);
      Vec<F> d = load(dmemory + w * z.N + i, count) - load(shrink + i, count) * m;
      for (int64_t h = 0; h < z.H; h++)
        d = at::vec::fmadd(
            Vec<F>(asked[h * z.W + w]), load(dfound + h * z.N + i, count), d);
      store(dmemory + w * z.N + i, d, count);
    });
  }
  for (int64_t h = 0; h < z.H; h++) {
    const F* head = params + h * z.row;
    F* dhead = draw + h * z.row;
    const F scale = F(1) / std::sqrt(dot(head, head, z.W) + F(COSINE_EPSILON));
    const F along = dot(head, dhead, z.W) * scale;
    for (int64_t w = 0; w < z.W; w++) {
      dhead[w] = head[z.W] * scale * (dhead[w] - along * head[w] * scale);
      if (z.squash) dhead[w] *= F(1) - head[w] * head[w];
    }
    dhead[z.W] = along * softplus_slope(head[z.W]);
  }
  for (int64_t u = 0; u < z.U; u++) {
    for (int64_t w = 0; w < z.W; w++) {
      const F erase = params[z.erase(u) + w], add = params[z.add(u) + w];
      draw[z.erase(u) + w] *= erase * (F(1) - erase);
      if (z.squash) draw[z.add(u) + w] *= F(1) - add * add;
    }
  }
  if (z.clipped)
    for (int64_t i = 0; i < z.P; i++)
      if (!(std::abs(raw[i]) <= F(z.clip))) draw[i] = F(0);
}

// The controller's sums, in place, into its gates and its candidate; the cell and the output.
template <class F>
void control(const Sizes& z, F* gates, const F* before, F* cell, F* output) {
  over<F>(z.C, [&](int64_t i, int64_t count) {
    if (!z.lstm) {
      const Vec<F> value = load(gates + i, count).tanh();
      store(gates + i, value, count);
      store(output + i, value, count);
      return;
    }
    F *take = gates + i, *keep = take + z.C, *emit = keep + z.C, *candidate = emit + z.C;
    const Vec<F> taken = sigmoid(load(take, count)), kept = sigmoid(load(keep, count));
    const Vec<F> emitted = sigmoid(load(emit, count)), fresh = load(candidate, count).tanh();
    const Vec<F> value = at::vec::fmadd(taken, fresh, kept * load(before + i, count));
    store(take, taken, count);
    store(keep, kept, count);
    store(emit, emitted, count);
    store(candidate, fresh, count);
    store(cell + i, value, count);
    store(output + i, emitted * value.tanh(), count);
  });
}

// dcell is that of the cell after the step and becomes that of the cell before it.
template <class F>
void control_back(
    const Sizes& z, const F* gates, const F* before, const F* cell, const F* doutput, F* dcell,
    F* dsums) {
  const Vec<F> one(F(1));
  over<F>(z.C, [&](int64_t i, int64_t count) {
    const Vec<F> d = load(doutput + i, count);
    if (!z.lstm) {
      const Vec<F> value = load(gates + i, count);
      store(dsums + i, d * (one - value * value), count);
      return;
    }
    const F *take = gates + i, *keep = take + z.C, *emit = keep + z.C, *candidate = emit + z.C;
    const Vec<F> taken = load(take, count), kept = load(keep, count), emitted = load(emit, count);
    const Vec<F> fresh = load(candidate, count), small = load(cell + i, count).tanh();
    const Vec<F> dc = at::vec::fmadd(d * emitted, one - small * small, load(dcell + i, count));
    F* to = dsums + i;
    store(to, dc * fresh * taken * (one - taken), count);
    store(to + z.C, dc * load(before + i, count) * kept * (one - kept), count);
    store(to + 2 * z.C, d * small * emitted * (one - emitted), count);
    store(to + 3 * z.C, dc * taken * (one - fresh * fresh), count);
    store(dcell + i, dc * kept, count);
  });
}

// ---- windows ------------------------------------------------------------------------------------

Sizes measure(
    int64_t T, const Tensor& recurrent, const Tensor& heads, const Tensor& memory,
    const Tensor& weightings, int64_t write_heads, bool lstm, optional<double> clip, bool squash) {
  Sizes z{};
  z.T = T, z.B = memory.size(0), z.N = memory.size(1), z.W = memory.size(2);
  z.H = weightings.size(1), z.U = write_heads, z.R = z.H - z.U;
  z.C = heads.size(1), z.G = recurrent.size(0), z.K = recurrent.size(1), z.P = heads.size(0);
  z.row = (z.P - z.U * 2 * z.W) / z.H, z.S = z.row - z.W - 3, z.reach = z.S / 2;
  z.lstm = lstm, z.squash = squash, z.clipped = clip.has_value(), z.clip = clip.value_or(0);
  TORCH_CHECK(
      z.G == (lstm ? 4 : 1) * z.C && z.K == z.R * z.W + (lstm ? z.C : 0) && z.S >= 1 &&
          z.S % 2 == 1 && z.P == z.H * z.row + z.U * 2 * z.W && z.R >= 1 && z.U >= 1,
      "the sizes of the parameters and of the state do not fit together");
  return z;
}

template <class F>
const F* at_sample(const optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr<F>() : nullptr;
}

enum Kept { GATES, CELLS, RAW, PARAMS, SCALE, SCORES, FOUND, SHIFTED, AFTER, MEMORIES };
constexpr int KEPT = MEMORIES + 1;

vector<int64_t> kept_sizes(const Sizes& z) {
  const int64_t lstm = z.lstm ? z.C : 0, looked = z.H * z.N;
  return {z.G, lstm, z.P, z.P, z.N, looked, looked, looked, looked, z.W * z.N};
}

// The tape's pointers for sample b at step t.
template <class F>
Tape<F> at_step(F* const* base, const vector<int64_t>& sizes, int64_t place) {
  const auto at = [&](int each) { return base[each] + place * sizes[each]; };
  return {at(GATES), at(CELLS), at(RAW), at(PARAMS), at(SCALE), at(SCORES),
          at(FOUND), at(SHIFTED), at(AFTER), at(MEMORIES)};
}

template <class F>
void forward_window(
    const Sizes& z, const bool* active, const Tensor& recurrent, const Tensor& heads,
    const Tensor& bias, const Tensor& weightings, const Tensor& reads0,
    const optional<Tensor>& hidden0, const optional<Tensor>& cell0, bool keep,
    const vector<Tensor>& tape, Tensor& outputs, Tensor& reads, Tensor& memory,
    Tensor& weightings_after, Tensor& hidden_after, Tensor& cell_after) {
  const Packed<F> sees(recurrent.const_data_ptr<F>(), z.K, z.G, 1, z.K);
  const Packed<F> tells(heads.const_data_ptr<F>(), z.C, z.P, 1, z.C);
  const vector<int64_t> sizes = kept_sizes(z);
  F* base[KEPT];
  for (int i = 0; i < KEPT; i++) base[i] = tape[i].template data_ptr<F>();
  const int64_t read = z.R * z.W;
  vector<F> seen(z.B * z.K);
  vector<F> before(z.B * z.H * z.N);
  std::copy_n(weightings.const_data_ptr<F>(), before.size(), before.data());
  // The state as it goes along.
  F* reading = reads.template data_ptr<F>();
  F* speaking = outputs.template data_ptr<F>();
  F* final_memory = memory.template data_ptr<F>();
  F* cells = cell_after.template data_ptr<F>();
  if (z.lstm) std::copy_n(cell0->const_data_ptr<F>(), z.B * z.C, cells);
  for (int64_t t = 0; t < z.T; t++) {
    const int64_t place = keep ? t * z.B : 0;
    const F* last_reads = t ? reading + (t - 1) * z.B * read : reads0.const_data_ptr<F>();
    const F* last_hidden =
        !z.lstm ? nullptr : t ? speaking + (t - 1) * z.B * z.C : hidden0->const_data_ptr<F>();
    for (int64_t b = 0; b < z.B; b++) {
      std::copy_n(last_reads + b * read, read, seen.data() + b * z.K);
      if (z.lstm) std::copy_n(last_hidden + b * z.C, z.C, seen.data() + b * z.K + read);
    }
    const Tape<F> now = at_step<F>(base, sizes, place);
    F* gates = base[GATES] + t * z.B * z.G;
    multiply(gates, seen.data(), z.B, sees);
    F* output = speaking + t * z.B * z.C;
    F* raw = z.clipped ? now.raw : base[RAW];
    for (int64_t b = 0; b < z.B; b++) {
      const bool frozen = active && !active[t * z.B + b];
      F* cell = z.lstm ? now.cells + b * z.C : nullptr;
      F* old = cells + (z.lstm ? b * z.C : 0);
      control(z, gates + b * z.G, old, cell, output + b * z.C);
      if (frozen && z.lstm) {
        std::copy_n(last_hidden + b * z.C, z.C, output + b * z.C);
        std::copy_n(old, z.C, cell);
      }
      if (z.lstm) std::copy_n(cell, z.C, old);
      std::copy_n(bias.const_data_ptr<F>(), z.P, raw + b * z.P);
    }
    multiply(raw, output, z.B, tells);
    at::parallel_for(0, z.B, grain(z), [&](int64_t b, int64_t end) {
      const FlushTiny flush;
      Scratch<F> scratch(z);
      for (; b < end; b++) {
        const Tape<F> here = at_step<F>(base, sizes, place + b);
        F* old = before.data() + b * z.H * z.N;
        // A step of the tape holds the memory that it finds; the last one's result is apart.
        F* next = !keep ? here.memories
            : t + 1 < z.T ? here.memories + z.B * z.W * z.N
                          : final_memory + b * z.W * z.N;
        F* to = reading + (t * z.B + b) * read;
        if (active && !active[t * z.B + b]) {
          std::copy_n(last_reads + b * read, read, to);
          if (next != here.memories) std::copy_n(here.memories, z.W * z.N, next);
          std::copy_n(old, z.H * z.N, here.after);
          continue;
        }
        activate(z, raw + b * z.P, here.params);
        remember(z, here.params, here.memories, old, here, next, to, scratch);
        std::copy_n(here.after, z.H * z.N, old);
      }
    });
  }
  std::copy_n(before.data(), before.size(), weightings_after.template data_ptr<F>());
  if (z.lstm)
    std::copy_n(speaking + (z.T - 1) * z.B * z.C, z.B * z.C, hidden_after.template data_ptr<F>());
}

template <class F>
void backward_window(
    const Sizes& z, const bool* active, const Tensor& recurrent, const Tensor& heads,
    const Tensor& weightings, const optional<Tensor>& cell0, const vector<Tensor>& tape,
    const optional<Tensor>& doutputs, const optional<Tensor>& dreads, Tensor& dsums, Tensor& draw,
    Tensor& dmemory, Tensor& dweightings, Tensor& dread, Tensor& dhidden, Tensor& dcell) {
  const Packed<F> sees(recurrent.const_data_ptr<F>(), z.G, z.K, z.K, 1);
  const Packed<F> tells(heads.const_data_ptr<F>(), z.P, z.C, z.C, 1);
  const vector<int64_t> sizes = kept_sizes(z);
  F* base[KEPT];
  for (int i = 0; i < KEPT; i++) base[i] = const_cast<F*>(tape[i].template const_data_ptr<F>());
  const int64_t read = z.R * z.W;
  vector<F> dout(z.B * z.C), dseen(z.B * z.K);
  F *dr = dread.template data_ptr<F>(), *dm = dmemory.template data_ptr<F>();
  F *dw = dweightings.template data_ptr<F>();
  F *dh = dhidden.template data_ptr<F>(), *dc = dcell.template data_ptr<F>();
  const F *given_out = at_sample<F>(doutputs), *given_reads = at_sample<F>(dreads);
  for (int64_t t = z.T - 1; t >= 0; t--) {
    const int64_t place = t * z.B;
    F* ds = dsums.template data_ptr<F>() + place * z.G;
    F* raw = draw.template data_ptr<F>() + place * z.P;
    const bool* here_active = active ? active + place : nullptr;
    if (given_reads)
      for (int64_t i = 0; i < z.B * read; i++) dr[i] += given_reads[place * read + i];
    at::parallel_for(0, z.B, grain(z), [&](int64_t b, int64_t end) {
      const FlushTiny flush;
      Scratch<F> scratch(z);
      for (; b < end; b++) {
        if (here_active && !here_active[b]) {
          std::fill_n(raw + b * z.P, z.P, F(0));
          continue;
        }
        const Tape<F> here = at_step<F>(base, sizes, place + b);
        const F* old = t ? here.after - z.B * z.H * z.N
                         : weightings.const_data_ptr<F>() + b * z.H * z.N;
        remember_back(
            z, here.raw, here.params, here.memories, old, here, dr + b * read,
            dm + b * z.W * z.N, dw + b * z.H * z.N, raw + b * z.P, scratch);
      }
    });
    for (int64_t b = 0; b < z.B; b++) {
      const bool frozen = here_active && !here_active[b];
      F* to = dout.data() + b * z.C;
      std::fill_n(to, z.C, F(0));
      if (frozen) continue;
      if (given_out) std::copy_n(given_out + (place + b) * z.C, z.C, to);
      if (z.lstm)
        for (int64_t i = 0; i < z.C; i++) to[i] += dh[b * z.C + i];
    }
    multiply(dout.data(), raw, z.B, tells);
    for (int64_t b = 0; b < z.B; b++) {
      if (here_active && !here_active[b]) {
        std::fill_n(ds + b * z.G, z.G, F(0));
        continue;
      }
      const Tape<F> here = at_step<F>(base, sizes, place + b);
      const F* old = !z.lstm ? nullptr
          : t ? here.cells - z.B * z.C
              : cell0->const_data_ptr<F>() + b * z.C;
      control_back(z, here.gates, old, here.cells, dout.data() + b * z.C,
                   z.lstm ? dc + b * z.C : nullptr, ds + b * z.G);
    }
    std::fill(dseen.begin(), dseen.end(), F(0));
    multiply(dseen.data(), ds, z.B, sees);
    for (int64_t b = 0; b < z.B; b++) {
      if (here_active && !here_active[b]) continue;
      std::copy_n(dseen.data() + b * z.K, read, dr + b * read);
      if (z.lstm) std::copy_n(dseen.data() + b * z.K + read, z.C, dh + b * z.C);
    }
  }
}

// ---- what torch sees ----------------------------------------------------------------------------

#define BY_TYPE(tensor, ...)                                           \
  if ((tensor).scalar_type() == at::kFloat) {                          \
    using F = float;                                                   \
    __VA_ARGS__;                                                       \
  } else {                                                             \
    TORCH_CHECK((tensor).scalar_type() == at::kDouble, "not a float"); \
    using F = double;                                                  \
    __VA_ARGS__;                                                       \
  }

// A tensor for the tape. A large one asks for large pages: the system gives memory a page at a time
// when it is first written to, and for small pages that takes as long as the writing.
Tensor kept(at::IntArrayRef sizes, const at::TensorOptions& options) {
  Tensor made = at::empty(sizes, options);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t LARGE = std::uintptr_t(1) << 21;
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(made.const_data_ptr());
  const std::uintptr_t begin = (from + LARGE - 1) / LARGE * LARGE;
  const std::uintptr_t end = (from + made.nbytes()) / LARGE * LARGE;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return made;
}

Tensor turned(const Tensor& memory) { return memory.transpose(1, 2).contiguous(); }

optional<Tensor> contiguous(const optional<Tensor>& tensor) {
  return tensor.has_value() ? optional<Tensor>(tensor->contiguous()) : tensor;
}

vector<Tensor> forward(
    Tensor sums, const optional<Tensor>& active, const Tensor& recurrent,
    const Tensor& heads, const Tensor& bias, const Tensor& memory, const Tensor& weightings,
    const Tensor& reads, const optional<Tensor>& hidden, const optional<Tensor>& cell,
    int64_t write_heads, optional<double> clip, bool tanh, bool keep) {
  const Sizes z = measure(
      sums.size(0), recurrent, heads, memory, weightings, write_heads, cell.has_value(), clip, tanh);
  const auto options = memory.options();
  const int64_t steps = keep ? z.T : 1;
  TORCH_CHECK(sums.is_contiguous(), "the sums, which are written over, must be contiguous");
  // The sums become the gates where they stand. What the heads were sent is only looked at again
  // to see what was clipped.
  vector<Tensor> tape = {sums};
  const vector<int64_t> sizes = kept_sizes(z);
  for (int each = CELLS; each < KEPT; each++)
    tape.push_back(kept({each == RAW && !z.clipped ? 1 : steps, z.B, sizes[each]}, options));
  tape[MEMORIES][0].view({z.B, z.W, z.N}).copy_(memory.transpose(1, 2));
  Tensor outputs = at::empty({z.T, z.B, z.C}, options);
  Tensor read = at::empty({z.T, z.B, z.R, z.W}, options);
  Tensor last = at::empty({z.B, z.W, z.N}, options);
  Tensor weightings_after = at::empty({z.B, z.H, z.N}, options);
  Tensor hidden_after = at::empty({z.lstm ? z.B : 0, z.C}, options);
  Tensor cell_after = at::empty({z.lstm ? z.B : 0, z.C}, options);
  const optional<Tensor> mask = contiguous(active);
  const bool* chosen = mask.has_value() ? mask->const_data_ptr<bool>() : nullptr;
  const Tensor recurrent_ = recurrent.contiguous(), heads_ = heads.contiguous();
  const Tensor bias_ = bias.contiguous();
  const Tensor weightings_ = weightings.contiguous(), reads_ = reads.contiguous();
  const optional<Tensor> hidden_ = contiguous(hidden), cell_ = contiguous(cell);
  BY_TYPE(memory, forward_window<F>(z, chosen, recurrent_, heads_, bias_, weightings_,
                                    reads_, hidden_, cell_, keep, tape, outputs, read, last,
                                    weightings_after, hidden_after, cell_after));
  Tensor memory_after = turned(keep ? last : tape[MEMORIES][0].view({z.B, z.W, z.N}));
  vector<Tensor> found = {outputs, read, memory_after, weightings_after, read[z.T - 1].clone(),
                          hidden_after, cell_after};
  if (keep) found.insert(found.end(), tape.begin() + 1, tape.end());
  return found;
}

vector<Tensor> backward(
    vector<Tensor> tape, const optional<Tensor>& active, const Tensor& recurrent,
    const Tensor& heads, const Tensor& weightings, const optional<Tensor>& cell,
    const optional<Tensor>& doutputs, const optional<Tensor>& dreads, const Tensor& dmemory,
    const Tensor& dweightings, const Tensor& dread, const optional<Tensor>& dhidden,
    const optional<Tensor>& dcell, int64_t write_heads, optional<double> clip, bool tanh) {
  TORCH_CHECK(tape.size() == KEPT, "not a tape");
  const Sizes z = measure(
      tape[GATES].size(0), recurrent, heads, dmemory, weightings, write_heads, cell.has_value(), clip, tanh);
  const auto options = dmemory.options();
  Tensor dsums = at::empty({z.T, z.B, z.G}, options), draw = at::empty({z.T, z.B, z.P}, options);
  // These become the derivatives of the state before, a step after the other.
  Tensor dm = at::empty({z.B, z.W, z.N}, options).copy_(dmemory.transpose(1, 2));
  Tensor dw = dweightings.clone(at::MemoryFormat::Contiguous);
  Tensor dr = dread.clone(at::MemoryFormat::Contiguous);
  Tensor none = at::empty({0}, options);
  Tensor dh = z.lstm ? dhidden->clone(at::MemoryFormat::Contiguous) : none;
  Tensor dc = z.lstm ? dcell->clone(at::MemoryFormat::Contiguous) : none;
  const optional<Tensor> mask = contiguous(active);
  const bool* chosen = mask.has_value() ? mask->const_data_ptr<bool>() : nullptr;
  const Tensor recurrent_ = recurrent.contiguous(), heads_ = heads.contiguous();
  const Tensor weightings_ = weightings.contiguous();
  const optional<Tensor> cell_ = contiguous(cell);
  const optional<Tensor> doutputs_ = contiguous(doutputs), dreads_ = contiguous(dreads);
  BY_TYPE(dmemory, backward_window<F>(z, chosen, recurrent_, heads_, weightings_, cell_, tape,
                                      doutputs_, dreads_, dsums, draw, dm, dw, dr, dh, dc));
  return {dsums, draw, turned(dm), dw, dr, dh, dc};
}

}  // namespace

TORCH_LIBRARY(onegraph_ntm, library) {
  library.def(
      "forward(Tensor(a!) sums, Tensor? active, Tensor recurrent, Tensor heads, Tensor bias, "
      "Tensor memory, Tensor weightings, Tensor reads, Tensor? hidden, Tensor? cell, "
      "int write_heads, float? clip, bool tanh, bool keep) -> Tensor[]");
  library.def(
      "backward(Tensor[] tape, Tensor? active, Tensor recurrent, Tensor heads, "
      "Tensor weightings, Tensor? cell, Tensor? doutputs, Tensor? dreads, Tensor dmemory, "
      "Tensor dweightings, Tensor dread, Tensor? dhidden, Tensor? dcell, int write_heads, "
      "float? clip, bool tanh) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(onegraph_ntm, CPU, library) {
  library.impl("forward", &forward);
  library.impl("backward", &backward);
}
