package embedder

import (
	"hash/fnv"
	"math"
	"strings"
	"unicode"
)

// Dimensions is the length of a vector.
const Dimensions = 64

// Embed returns the vector of a text: each word adds 1 or -1 to the dimension given by its hash. The
// vector has the length 1, or 0 for a text without words.
func Embed(text string) []float32 {
	sum := make([]float64, Dimensions)
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, word := range words {
		h := fnv.New64a()
		_, _ = h.Write([]byte(word)) // never fails
		bits := h.Sum64()
		sum[bits%Dimensions] += 1 - 2*float64(bits>>63)
	}
	length := 0.0
	for _, v := range sum {
		length += v * v
	}
	vector := make([]float32, Dimensions)
	if length == 0 {
		return vector
	}
	for i, v := range sum {
		vector[i] = float32(v / math.Sqrt(length))
	}
	return vector
}
