// Package packages installs the packages on Debian machines in which systemd runs, by the
// commands of docs/how-to/install.md and secure.md. It guarantees that nothing is left: machines
// lie in namespaces and control groups of their own, and change no setting outside them. It must
// not install in another way than the pages say. It is called by `make test-packages`. Start with
// TestPackagesInstallUpgradeAndRemove; machine_test.go boots the machines.
package packages
