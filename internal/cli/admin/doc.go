// Package admin has the commands that change the cluster: its policy, its nodes, grants, tokens,
// and the recovery from the loss of a quorum.
//
// Each change is one request to meta, which applies it completely or not at all; recover inspect,
// plan and apply read and write the directories of stopped nodes instead (package salvage).
//
// A crash after a request was sent leaves its outcome unknown: show the state, or repeat the
// command.
package admin
