package schema

import percolator "github.com/percolator-go/percolator"

// The tables.
const (
	TablePages    = "pages"
	TableLinks    = "links"
	TableStubs    = "stubs"
	TableClusters = "clusters"
	TableMembers  = "members"
	TableAnchors  = "anchors"
)

// The columns of pages.
const (
	Raw      = "raw"
	Sum      = "sum"
	Title    = "title"
	Text     = "text"
	Content  = "content"
	Links    = "links"
	Out      = "out"
	Inverted = "inverted"
	Hung     = "hung"
	Path     = "path"
	Filed    = "filed"
	Cluster  = "cluster"
	Canon    = "canon"
	Share    = "share"
	Rank     = "rank"
	Moved    = "moved"
	Doc      = "doc"      // observed by package export
	Refile   = "refile"   // weak
	Resolve  = "resolve"  // weak
	Reinvert = "reinvert" // weak
	Rerank   = "rerank"   // weak
	Publish  = "publish"  // weak
)

// The columns of clusters.
const (
	Canonical = "canonical"
	Many      = "many"
	Elected   = "elected"
	Elect     = "elect" // weak
)

// The columns of the tables that have a single column.
const (
	From       = "from" // of links and stubs
	Kind       = "kind" // of members
	AnchorText = "text" // of anchors
)

// Tables returns the names of all tables.
func Tables() []string {
	return []string{TablePages, TableLinks, TableStubs, TableClusters, TableMembers, TableAnchors}
}

// Pages returns the named column of the table pages.
func Pages(name string) percolator.Column {
	return percolator.Column{Table: TablePages, Name: name}
}

// Clusters returns the named column of the table clusters.
func Clusters(name string) percolator.Column {
	return percolator.Column{Table: TableClusters, Name: name}
}

// LinkFrom returns the column of links.
func LinkFrom() percolator.Column { return percolator.Column{Table: TableLinks, Name: From} }

// StubFrom returns the column of stubs.
func StubFrom() percolator.Column { return percolator.Column{Table: TableStubs, Name: From} }

// MemberKind returns the column of members.
func MemberKind() percolator.Column { return percolator.Column{Table: TableMembers, Name: Kind} }

// Anchor returns the column of anchors.
func Anchor() percolator.Column { return percolator.Column{Table: TableAnchors, Name: AnchorText} }
