package op

// Activation is the gate's nonlinearity in the feed-forward block.
type Activation uint8

const (
	// SiLU is x·σ(x) (Shazeer, "GLU Variants Improve Transformer", 2020: SwiGLU).
	SiLU Activation = iota
	// GeLUTanh is 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) (Hendrycks and
	// Gimpel, 2016): GeGLU with the tanh form.
	GeLUTanh
)

// String returns the name that configuration files use.
func (a Activation) String() string {
	if a == GeLUTanh {
		return "gelu_tanh"
	}
	return "silu"
}

// Add is Dst += Src, element by element.
type Add struct {
	Dst Tensor // any shape, +=
	Src Tensor // as many elements
}

// Scale is Dst = Factor·Src, element by element. The two do not overlap.
type Scale struct {
	Dst    Tensor // any shape, written
	Src    Tensor // as many elements
	Factor float32
}

// Cast converts between F32 and F16 or BF16, to nearest with ties to even; NaN
// stays NaN. To F16 it clamps to ±65,504, as a copy of weights must; to BF16, which
// only a Rounder need have, it does not, and an infinity stays one.
type Cast struct {
	Dst Tensor
	Src Tensor
}

// Sum is Out[0] = Scale·ΣX, or += with Acc, in an order fixed by the shape.
type Sum struct {
	X     Tensor // (n)
	Out   Tensor // (1)
	Scale float32
	Acc   bool
}

// Embedding is Out[n] = W[Tokens[n]].
type Embedding struct {
	Tokens Tensor // (N) int32, each in [0, V)
	W      Tensor // (V, C), F32 or F16
	Out    Tensor // (N, C)
}

// EmbeddingBackward undoes Embedding: DW[Tokens[n]] += DOut[n], summed in
// order of n for each row, without atomics.
type EmbeddingBackward struct {
	Tokens Tensor // (N) int32
	DOut   Tensor // (N, C)
	DW     Tensor // (V, C), +=
}

// RMSNorm is Y = X·rms_inv·W with rms_inv = (mean X² + Eps)^−½ per row (Zhang
// and Sennrich, "Root Mean Square Layer Normalization", 2019). RMSInv is kept
// for the backward pass.
type RMSNorm struct {
	X      Tensor // (N, C)
	W      Tensor // (C), F32 or F16
	Y      Tensor // (N, C), operand
	RMSInv Tensor // (N)
	Eps    float32
}

// RMSNormBackward undoes RMSNorm. With A = Σ_c W·X·DY of a row,
// DX = W·DY·rms_inv − X·rms_inv³·A/C and DW += Σ_rows X·rms_inv·DY. DXCopy gets what
// is then in DX, for products that read it; it may be DX itself, which it equals.
type RMSNormBackward struct {
	X      Tensor // (N, C)
	W      Tensor // (C), F32
	DY     Tensor // (N, C)
	RMSInv Tensor // (N)
	DX     Tensor // (N, C), written, or += with AddDX (the residual stream's gradient)
	DXCopy Tensor // optional (N, C), operand, written
	DW     Tensor // optional (C), +=; absent where the gain is frozen
	AddDX  bool
}

// MatMul is C = op(A)·op(B), with C += for Acc and + Residual when present.
// Its three forms are the forward product X·W, the input gradient dY·Wᵀ
// (TransB) and the weight gradient Xᵀ·dY (TransA). TransA with TransB is not a
// form. Residual may be C itself. A, B and C need not be of one type. A C of 16 bits
// is rounded once, from the float32 sum; what is added to, with Acc, or may be the
// residual stream, with Residual, stays F32.
type MatMul struct {
	A        Tensor // (M, K), or (K, M) with TransA; operand
	B        Tensor // (K, N), or (N, K) with TransB; operand, or weights in F16
	C        Tensor // (M, N); operand without Acc and Residual
	Residual Tensor // optional (M, N)
	TransA   bool
	TransB   bool
	Acc      bool
}

// Sizes returns M, N, K.
func (a MatMul) Sizes() (m, n, k int) {
	m, k = a.A.Rows(), a.A.Cols()
	if a.TransA {
		m, k = k, m
	}
	n = a.B.Cols()
	if a.TransB {
		n = a.B.Rows()
	}
	return m, n, k
}

// MatMulSum is C = Σ op(Aᵢ)·op(Bᵢ) over products that share C and may differ in K,
// such as the gradient of an input that several weights read, dX = Σ dYᵢ·Wᵢᵀ. It
// means that its products run one after another in this order, all but the first with
// Acc. A backend may keep the sum in registers in between, which rounds no more and no
// less, as C is float32 too; in which order it adds within is its own affair, as in one
// product. Acc and Residual belong to the first product alone. C is no factor of any
// product, and F32 where there are several.
type MatMulSum []MatMul

// Product returns product i as it runs after those before it.
func (a MatMulSum) Product(i int) MatMul {
	p := a[i]
	p.Acc = p.Acc || i > 0
	return p
}

// RoPE rotates pairs (i, i + D/2) of every head by the angle of its position,
// Pos0 + t (Su et al., "RoFormer", 2021, in the half-split form). Inverse rotates
// back, which is also the backward pass. Without Out, or where Out is X itself, the
// result takes X's place; otherwise X is only read. X2 and Out2 are a second pair of
// tensors, turned by the same angles: keys beside queries, in one pass where the
// backend has one. The two pairs do not overlap.
type RoPE struct {
	X       Tensor // (B, T, H, D)
	Out     Tensor // optional (B, T, H, D), operand, written
	X2      Tensor // optional (B, T, KVH, D)
	Out2    Tensor // optional (B, T, KVH, D), operand, written; only with X2
	Table   Tensor // (P, D): cos of the D/2 angles, then their sin; P ≥ Pos0 + T
	Pos0    int
	Inverse bool
}

// Split returns the rotations of the two tensors, each without the other. The second
// has no X where a has no X2.
func (a RoPE) Split() (first, second RoPE) {
	first, second = a, a
	first.X2, first.Out2 = Tensor{}, Tensor{}
	second.X, second.Out, second.X2, second.Out2 = a.X2, a.Out2, Tensor{}, Tensor{}
	return first, second
}

// Attention is causal softmax(Q·Kᵀ·Scale)·V with grouped-query heads: query
// head h reads key/value head h / (H/KVH) (Ainslie et al., "GQA", 2023). It is
// computed by tiles with an online softmax (Dao et al., "FlashAttention",
// 2022); LSE, the log of the sum of exp of each row's scores, is kept for the
// backward pass. While products round, so may the scores' products and the weights
// where they are multiplied by V.
type Attention struct {
	Q        Tensor // (B, T, H, D); Q, K and V are operands of one type
	K        Tensor // (B, T, KVH, D)
	V        Tensor // (B, T, KVH, D)
	Out      Tensor // (B, T, H, D), operand
	LSE      Tensor // (B, H, T)
	DocStart Tensor // optional (B, T) int32, not falling in t: query t sees keys DocStart[b,t] … t
	Scale    float32
}

// AttentionBackward undoes Attention. Scores are computed again from Q, K and
// LSE; no T×T buffer exists. DQ and DK are rotated back before a product reads
// them, and stay F32.
type AttentionBackward struct {
	Q, K, V  Tensor // as in Attention
	Out, LSE Tensor // as Attention wrote them
	DocStart Tensor
	DOut     Tensor // (B, T, H, D), operand
	Delta    Tensor // (B, H, T) scratch: Σ_d DOut·Out
	DQ       Tensor // (B, T, H, D), written
	DK       Tensor // (B, T, KVH, D), written
	DV       Tensor // (B, T, KVH, D), operand, written
	Scale    float32
}

// KVAppend copies T new rows of keys and values into the caches from slot
// Pos mod P on, going round at the end: slot (Pos + t) mod P.
type KVAppend struct {
	K, V           Tensor // (B, T, KVH, D), T ≤ P
	KCache, VCache Tensor // (B, P, KVH, D)
	Pos            int
}

// AttentionDecode is Attention for one query per sequence over the first Len
// slots of the caches, in any order of the slots: the softmax does not mind.
type AttentionDecode struct {
	Q              Tensor // (B, H, D)
	KCache, VCache Tensor // (B, P, KVH, D)
	Out            Tensor // (B, H, D)
	Len            int
	Scale          float32
}

// GLU is Out = act(Gate)·Up.
type GLU struct {
	Gate, Up Tensor // (N, F), operands of one type
	Out      Tensor // (N, F), operand; may be Up's memory
	Act      Activation
}

// GLUBackward undoes GLU: DUp = DOut·act(Gate), DGate = DOut·Up·act'(Gate).
type GLUBackward struct {
	Gate, Up   Tensor // (N, F), operands of one type
	DOut       Tensor // (N, F), operand
	DGate, DUp Tensor // (N, F), operands of one type, written; either may be DOut's memory
	Act        Activation
}

// GateUp is the first half of the feed-forward block; see Fuser. Out is computed
// from Gate and Up as they are stored.
type GateUp struct {
	X          Tensor // (N, C), operand
	WGate, WUp Tensor // (C, F), operands, or weights in F16
	Gate, Up   Tensor // (N, F), operands of one type
	Out        Tensor // (N, F), operand
	Act        Activation
}

// CrossEntropy computes each row's loss and, with Grad, the gradients of the
// logits: in DLogits, or where that is absent or Logits itself, in the logits'
// place. With p = softmax(l), α label smoothing and β z-loss (Szegedy et al.,
// 2015; Chowdhery et al., "PaLM", 2022):
//
//	loss = lse − (1−α)·l_t − α·mean(l) + β·lse²
//	dl   = [p − (1−α)·onehot − α/V + 2β·lse·p]·GradScale
//
// A row whose target is Ignore has loss 0 and gradient 0.
type CrossEntropy struct {
	Logits         Tensor // (R, V), overwritten with Grad where DLogits is absent
	DLogits        Tensor // optional (R, V), operand, written; only with Grad
	Targets        Tensor // (R) int32, each in [0, V) or Ignore
	Loss           Tensor // (R), nats, not scaled
	LabelSmoothing float32
	ZLoss          float32
	GradScale      float32 // 1/(counted targets of the whole step)
	Ignore         int32
	Grad           bool
}

// NonFinite says what AdamW does with gradients that are NaN or infinite.
type NonFinite uint8

const (
	// NonFiniteSkip leaves weights and moments of the whole step untouched; the
	// host can name the tensor.
	NonFiniteSkip NonFinite = iota
	// NonFiniteZero replaces such gradients by 0 and goes on.
	NonFiniteZero
)

// NormChunk is how many gradient elements one pair of partial sums covers.
const NormChunk = 1 << 16

// NormPartials is the number of partial pairs for n elements.
func NormPartials(n int) int { return (n + NormChunk - 1) / NormChunk }

// GradNormSq is the first pass of the gradient norm: for each chunk of
// NormChunk elements, Σ g² over its finite elements and the count of the
// others. In kernels: reduce_norm_sq.
type GradNormSq struct {
	G        Tensor // (n)
	Partials Tensor // (NormPartials(n), 2), written
}

// FinalizeGradStats is the second pass: Stats = {norm, clip, non-finite count,
// 0} with clip = min(1, MaxNorm/max(norm, 1e−6)); MaxNorm 0 means no clipping
// (clip = 1). In kernels: finalize_grad_stats.
type FinalizeGradStats struct {
	Partials Tensor // (p, 2), of all arenas
	Stats    Tensor // (4), written
	MaxNorm  float32
}

// AdamHyper are the numbers of one AdamW step (Loshchilov and Hutter,
// "Decoupled Weight Decay Regularization", 2019). Beta1Pow and Beta2Pow are
// β₁ᵗ and β₂ᵗ, computed by the caller in float64, t counted from 1.
type AdamHyper struct {
	LR, Beta1, Beta2, WeightDecay, Eps float32
	Beta1Pow, Beta2Pow                 float32
	NonFinite                          NonFinite
}

// AdamW updates n weights. With ĝ = g·clip:
//
//	m ← β₁·m + (1−β₁)·ĝ,  v ← β₂·v + (1−β₂)·ĝ²
//	w ← w − LR·( m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + Eps) + WeightDecay·w )
//
// G is only read. Stats[2] > 0 under NonFiniteSkip leaves everything as it is.
// The mirror becomes W as Cast converts it. In kernels: adamw_update.
type AdamW struct {
	W, M, V Tensor // (n), updated
	G       Tensor // (n)
	W16     Tensor // optional (n) F16 or BF16: the mirror, written; a skipped step leaves it
	Stats   Tensor // (4), from FinalizeGradStats
	AdamHyper
}

// MomentBlock is the number of 8-bit moments that share one scale.
const MomentBlock = 256

// AdamW8 is AdamW with moments of 8 bits in blocks of MomentBlock, one float32
// scale each (after Dettmers et al., "8-bit Optimizers via Block-wise
// Quantization", 2022, with linear codes):
//
//	m  = q·MScale, q in −127 … 127 (int8),            MScale = max|m|/127 of the block
//	√v = q·VScale, q in 0 … 255 (the byte, unsigned), VScale = max √v/255
//
// V is kept through its root, which is what the update divides by and has half
// the range. The update of W uses the new moments before they are encoded. A
// code is one of the two integers next to the quotient (a backend may round at
// random, so that small moments are not stuck), except that a positive √v never
// gets code 0, which would let its weight jump by m/Eps. A block of zeros has
// scale 0. In kernels: adamw_8bit_update.
type AdamW8 struct {
	W              Tensor // (n), updated
	G              Tensor // (n)
	M, V           Tensor // (n) I8; V's bytes are read as unsigned
	MScale, VScale Tensor // (ceil(n/MomentBlock))
	W16            Tensor // optional (n) F16 or BF16, as in AdamW
	Stats          Tensor // (4)
	AdamHyper
}
