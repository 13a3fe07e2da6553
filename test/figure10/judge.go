package main

import (
	"fmt"
	"os"
	"time"
)

// judge determines when the load was steady again: from then on the mean of five seconds is at
// least 80 % of the remaining nodes' capacity, which is their share of the rate before the kill.
func judge(seconds []int64, killed time.Duration) error {
	at := int(killed / time.Second) // the second in which it happened
	if at < window || at+1+window > len(seconds) {
		return fmt.Errorf("nothing to judge: %d seconds, killed in the %dth", len(seconds), at)
	}
	before := mean(seconds[at/2 : at]) // the first half warms up
	left := before * (zones - 1) / zones
	for from := at + 1; from+window <= len(seconds); from++ {
		if now := mean(seconds[from : from+window]); now >= steadyShare*left {
			after := time.Duration(from)*time.Second - killed
			fmt.Fprintf(os.Stderr, "before: %.0f transactions per second; steady again %s after the kill: %.0f, which is %.0f%% of %d/%d of before; later %.0f\n",
				before, after.Round(100*time.Millisecond), now, 100*now/left, zones-1, zones,
				mean(seconds[from:]))
			if after > steadyWithin {
				return fmt.Errorf("steady again only %s after the kill", after)
			}
			return nil
		}
	}
	return fmt.Errorf("never steady again: before %.0f transactions per second, after %.0f", before,
		mean(seconds[at+1:]))
}

func mean(seconds []int64) float64 {
	var sum int64
	for _, n := range seconds {
		sum += n
	}
	return float64(sum) / float64(len(seconds))
}
