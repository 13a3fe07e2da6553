package export

import (
	"context"
	"fmt"

	"github.com/blevesearch/bleve/v2"
)

// buryAtOnce is the number of tombstones that one batch removes.
const buryAtOnce = 1000

// bury deletes the tombstones. It is called before anything is exported: exports of earlier
// processes have ended with them.
func (x *Index) bury(ctx context.Context) error {
	for {
		q := bleve.NewTermQuery(kindGone)
		q.SetField(FieldKind)
		found, err := x.bleve.SearchInContext(ctx,
			bleve.NewSearchRequestOptions(q, buryAtOnce, 0, false))
		if err != nil {
			return fmt.Errorf("export: find tombstones: %w", err)
		}
		if len(found.Hits) == 0 {
			return nil
		}
		batch := x.bleve.NewBatch()
		for _, hit := range found.Hits {
			batch.Delete(hit.ID)
		}
		if err := x.bleve.Batch(batch); err != nil {
			return fmt.Errorf("export: drop tombstones: %w", err)
		}
	}
}
