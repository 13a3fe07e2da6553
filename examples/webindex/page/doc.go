// Package page is the glue between HTML files and pages: which URL a file has, which
// files of a tree are pages, and what a page says (title, text, links with their anchor
// text, redirect target). It is pure: observers and the batch verifier share it because
// it decides nothing about clusters, canonical pages or inverted links.
//
// Invariants:
//  1. Parse depends on its arguments alone and never fails: what the HTML parser makes of the bytes is the page.
//  2. Everything is bounded: see the constants. What exceeds a bound is left out by a rule that depends on the page
//     alone, so that every reader of it leaves out the same.
//  3. A URL in its normal form holds no space and no control character; both serve as separators in row keys.
package page
