// Package install puts the CNI plugin and its configuration where a container runtime
// looks for them, and takes them away again.
//
// It guarantees that the runtime sees each file old or new, never half, the plugin
// before the configuration that names it, and that nothing is placed where another
// network's configuration would be taken first.
//
// It must not know runtimes, nor touch files that are not named contivk8s or ConfFile.
package install
