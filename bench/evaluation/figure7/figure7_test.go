package figure7

import "testing"

// TestBatchJob: the sorting job assigns the clusters of the sequential algorithm, and most documents
// share one, as in the paper.
func TestBatchJob(t *testing.T) {
	p := build(3000, 1)
	b, err := newBatchJob(t.TempDir(), p.keys)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.run()
	if err != nil {
		t.Fatal(err)
	}
	members := map[uint32]int{}
	for doc, of := range got {
		if of != p.of[doc] {
			t.Fatalf("document %d is in cluster %d, not %d", doc, of, p.of[doc])
		}
		members[of]++
	}
	single := 0
	for _, n := range members {
		if n == 1 {
			single++
		}
	}
	if mean := 3000 / float64(len(members)); mean < 2 || mean > 4.5 || single > 600 {
		t.Errorf("a cluster has %.1f documents, %d are alone", mean, single)
	}
}
