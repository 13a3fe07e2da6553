//go:build broken_install_without_marker

package broken

// InstallWithoutMarker: a snapshot is installed without the durable marker that has an installation that a crash cut short begun anew (design section 5).
const InstallWithoutMarker = true
