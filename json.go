package percolator

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/percolator-go/percolator/internal/txn"
)

// bytesText is a row, column or value in JSON: a string if it is valid UTF-8, otherwise an
// object with its base64 encoding. Every byte string survives the round trip.
type bytesText string

type markedBase64 struct {
	Base64 string `json:"base64"`
}

// MarshalJSON writes a JSON string, or {"base64": "…"}.
func (b bytesText) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(markedBase64{base64.StdEncoding.EncodeToString([]byte(b))})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *bytesText) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*b = bytesText(text)
		return nil
	}
	var marked markedBase64
	if err := json.Unmarshal(data, &marked); err != nil {
		return txn.Errorf("neither a JSON string nor {\"base64\": …}: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(marked.Base64)
	*b = bytesText(raw)
	return err
}

type columnJSON struct {
	Table bytesText `json:"table"`
	Name  bytesText `json:"name"`
}

type cellKeyJSON struct {
	Row    bytesText `json:"row"`
	Column Column    `json:"column"`
}

type cellJSON struct {
	cellKeyJSON
	Value    bytesText `json:"value"`
	CommitTS Timestamp `json:"commit_ts"`
}

// MarshalJSON writes {"table": …, "name": …}.
func (c Column) MarshalJSON() ([]byte, error) {
	return json.Marshal(columnJSON{bytesText(c.Table), bytesText(c.Name)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Column) UnmarshalJSON(data []byte) error {
	var j columnJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*c = Column{string(j.Table), string(j.Name)}
	return nil
}

// MarshalJSON writes {"row": …, "column": …}.
func (k CellKey) MarshalJSON() ([]byte, error) {
	return json.Marshal(cellKeyJSON{bytesText(k.Row), k.Column})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (k *CellKey) UnmarshalJSON(data []byte) error {
	var j cellKeyJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*k = CellKey{string(j.Row), j.Column}
	return nil
}

// MarshalJSON writes {"row": …, "column": …, "value": …, "commit_ts": …}.
func (c Cell) MarshalJSON() ([]byte, error) {
	key := cellKeyJSON{bytesText(c.Row), c.Column}
	return json.Marshal(cellJSON{key, bytesText(c.Value), c.CommitTS})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Cell) UnmarshalJSON(data []byte) error {
	var j cellJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*c = Cell{CellKey{string(j.Row), j.Column}, []byte(j.Value), j.CommitTS}
	return nil
}
