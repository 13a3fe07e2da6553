// Package schema names the tables and columns of the web index and encodes their rows and values. It decides nothing;
// the observers, the batch verifier and the command share it.
//
// # Tables
//
// Rows of pages are URLs in normal form; a row of another table joins its parts by a space, which no URL contains.
//
//	pages     URL                        (also of URLs that are only linked to: they have a rank)
//	  raw       loader    strong: process   the HTML
//	  sum       loader                      content hash of raw, so that loading again can tell what changed
//	  title     process                     absent if empty, as all the following
//	  text      process
//	  content   process                     "page HASH" or "stub TARGET"
//	  links     process   strong: invert    one line per target: target, then its anchor texts, tab-separated
//	  touched   process, invert             targets whose link from here came or went since invert last looked
//	  inverted  invert                      one line per link that hangs: target, canonical, digest of its anchor texts
//	  hung      invert                      digest of the links that hang; set when they change
//	  path      resolve                     where redirects lead: the URLs on the way, then how it ends
//	  filed     resolve                     the content that the page is filed under; set when that changes
//	  cluster   resolve                     "HASH page" or "HASH stub" of a member of a cluster of duplicates
//	  canon     resolve   strong: relink    canonical URL; absent if it is the URL itself
//	  rank      rank                        see below, of the URL itself, duplicate or not; absent for BaseRank
//	  doc       publish   strong: export    on a canonical page with content: see Document; absent elsewhere
//	  refile    -         weak: refile      the page's content changed
//	  resolve   -         weak: resolve     a page on its way or its cluster's canonical page changed
//	  reinvert  -         weak: reinvert    the canonical page of a link's target changed
//	  rerank    -         weak: rank        a page links here or no longer does, or passes on another share
//	  publish   -         weak: publish     title, text, rank, canonical URL or anchors of the page changed
//	links     TARGET SOURCE              which pages link to a URL (not: to its cluster)
//	  from      process
//	stubs     TARGET STUB                which stubs redirect to a URL
//	  from      process
//	clusters  HASH                       pages with the same content
//	  canonical resolve, elect              the canonical page; empty while the cluster has only stubs
//	  many      resolve                     there: the cluster has or had more than one page; never removed
//	  elected   elect     strong: announce  the canonical page that elect changed it to
//	  elect     -         weak: elect       members or the links to them changed
//	members   HASH URL                   the pages of a cluster, and the stubs that lead to one of them
//	  kind      resolve                     "page" or "stub"
//	anchors   CANONICAL SOURCE TARGET    the inverted links: what SOURCE says about CANONICAL, by a link to TARGET
//	  text      invert                      the anchor texts, one per line
//
// # What the index says
//
// A stub is a page with <meta http-equiv="refresh">. Redirects are followed until a URL comes up
// again, and over at most page.MaxRedirects hops before that. Every URL has one canonical URL:
//
//   - Redirects that end at a page with content: the page's cluster is all pages with the same bytes and all stubs that
//     lead to one of them. Canonical is, of its pages with content, the one that most distinct pages link to (to that
//     very URL; pages of the cluster count); of equals the least URL.
//   - Redirects that end at a URL without a page: that URL. A URL without a page that nothing redirects: itself.
//   - Redirects that end in a loop: the least URL of the loop.
//   - Redirects that go on for longer: the URL itself, as if it were no stub.
//
// Every link hangs, with its anchor texts, on the canonical URL of its target.
//
// # What is exported
//
// A page that is its own canonical URL and has content has a doc; no other URL has one. It is written, once the page's
// other cells are, whenever the page's content (title, text), its rank, its anchors or the number of pages that link to its
// cluster changed, or when it became canonical; it is deleted when the page stopped being canonical or is gone. A strong
// observer of doc therefore sees every change of what a search shows, of deletions the delete. Duplicates are not part of
// it: they are the rows of members with prefix Hash, looked up when they are shown.
package schema
