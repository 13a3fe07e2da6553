package main

import (
	"cmp"
	"strconv"
	"strings"
)

// compareVersions orders versions of packages as dpkg does: epoch, upstream version,
// revision (deb-version(7)).
func compareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	return cmp.Or(cmp.Compare(epochA, epochB), comparePart(upstreamA, upstreamB),
		comparePart(revisionA, revisionB))
}

func splitVersion(v string) (epoch int, upstream, revision string) {
	if before, after, ok := strings.Cut(v, ":"); ok {
		epoch, _ = strconv.Atoi(before) // what is no number is epoch 0
		v = after
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// comparePart compares alternating runs of non-digits and digits.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for notDigit(a) || notDigit(b) {
			if c := cmp.Compare(weight(a), weight(b)); c != 0 {
				return c
			}
			a, b = a[1:], b[1:]
		}
		var numberA, numberB string
		numberA, a = digits(a)
		numberB, b = digits(b)
		if c := cmp.Or(cmp.Compare(len(numberA), len(numberB)),
			cmp.Compare(numberA, numberB)); c != 0 {
			return c
		}
	}
	return 0
}

func notDigit(s string) bool { return s != "" && (s[0] < '0' || s[0] > '9') }

// weight returns the place of the first byte of s in this order: a tilde, the end of s or a digit,
// letters, all other bytes.
func weight(s string) int {
	switch {
	case !notDigit(s):
		return 0
	case s[0] == '~':
		return -1
	case s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z':
		return int(s[0])
	default:
		return int(s[0]) + 256
	}
}

// digits splits a number without leading zeros off.
func digits(s string) (number, rest string) {
	i := 0
	for i < len(s) && !notDigit(s[i:]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
