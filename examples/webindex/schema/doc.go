// Package schema names the tables and columns of the web index and encodes their rows and
// values. It decides nothing; the observers, the batch verifier and the command share it.
//
// # Tables
//
// Rows of pages are URLs in normal form; a row of another table joins its parts by a
// space, which no URL contains.
//
//	pages     URL                        (also of URLs that are only linked to: they have a rank)
//	  raw       loader    strong: process   the HTML
//	  sum       loader                      content hash of raw, so that loading again can tell what changed
//	  title     process                     absent if empty, as all the following
//	  text      process
//	  content   process                     "page HASH" or "stub TARGET"
//	  links     process   strong: invert    one line per target: target, then its anchor texts, tab-separated
//	  out       process                     how many targets there are
//	  inverted  invert                      one line per link that hangs: target, canonical, digest of its anchor texts
//	  hung      invert                      digest of the links that hang; set when they change
//	  path      resolve                     where redirects lead: the URLs on the way, then how it ends
//	  filed     resolve                     the content that the page is filed under; set when that changes
//	  cluster   resolve                     "HASH page" or "HASH stub" of a member of a cluster of duplicates
//	  canon     resolve   strong: relink    canonical URL; absent if it is the URL itself
//	  share     rank                        what the page passes on to each of its targets: a number a round
//	  rank      rank                        in thousandths, of the URL itself, duplicate or not; absent for BaseRank
//	  moved     rank, publish               the rank changed since publish last had the cluster's canonical page elected
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
//	  elect     -         weak: elect       members or their ranks changed
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
//     lead to one of them. Canonical is, of its pages with content, the one of the highest rank; of equals the least URL.
//   - Redirects that end at a URL without a page: that URL. A URL without a page that nothing redirects: itself.
//   - Redirects that end in a loop: the least URL of the loop.
//   - Redirects that go on for longer: the URL itself, as if it were no stub.
//
// Every link hangs, with its anchor texts, on the canonical URL of its target.
//
// # Rank
//
// Rank is PageRank with a damping of 1/2 over the links as they are written: what is
// linked to is a URL, not its cluster, and a stub passes nothing on. So rank depends on
// no choice of a canonical page, which depends on it. It is defined by rounds:
//
//	r(t, 0)   = 1
//	r(t, k+1) = round(1/2 + 1/2 · sum of share(s, k) over the pages s that link to t)
//	share(s, k) = round(r(s, k) / number of targets that s links to)
//	rank(t)   = r(t, Rounds) in thousandths, rounded down
//
// All are integers, multiples of 1/2^20; quotients are rounded down. Then round keeps the
// Digits leading binary digits and goes up from 19/32 of a step on. Half a step would not
// do: 1/2 + 300 · 1/20 lies exactly there, and every change would push it to the other side.
// The average rank is 1, less what is lost in pages without links.
//
// Rounds instead of a fixed point: (t, k+1) depends on (s, k) alone, never on itself,
// cycles of links or not. So
//
//   - the result is unique. It follows from the pages, whatever the order in which they were loaded, edited and removed,
//     and can be compared without a tolerance. The fixed points of a rounded PageRank are many;
//   - it ends. After the last edit round 0 stands still; once round k does everywhere, every page computes round k+1 at most
//     once more. There is nothing to go back and forth between.
//
// Rounding is the threshold below which changes stop: a page has its targets computed
// again only if a digit that it passes on changed. Its price, as a share of all ranks:
// each rounding is off by at most 1.2/2^Digits, which the rounds add up to 3.6/2^Digits
// in the worst case; the rounds left out are at most 2/2^Rounds.
//
// # What is exported
//
// A page that is its own canonical URL and has content has a doc; no other URL has one.
// It is written, once the page's other cells are, whenever the page's content (title,
// text), its rank, its anchors or the number of pages that link to its cluster changed,
// or when it became canonical; it is deleted when the page stopped being canonical or is
// gone. A strong observer of doc therefore sees every change of what a search shows; if the
// page is gone or no longer canonical, it sees the deletion of doc. Duplicates are not part of
// doc: they are the rows of members with prefix Hash, looked up when they are shown.
package schema
