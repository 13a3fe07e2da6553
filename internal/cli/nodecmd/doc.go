// Package nodecmd has the commands that run a node in this process, start and dev, with their
// flags, and the commands that make and show certificates.
//
// What starts a node is injected (shell.App.Start); this package knows nothing of actors or
// storage. A first signal drains the node, a second one stops it. companions.go runs a program's
// functions beside the node, auditlog.go copies acts of operators into a file.
//
// A node that dies leaves its ready file behind.
package nodecmd
