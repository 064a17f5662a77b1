// Package pagetest writes the generated pages of docs/reference and compares them with the
// code, and reads the code blocks of all pages for tests that run or parse them. It guarantees
// that each generated page names the command that renews it in its first line.
// It must not know what a page is about. It is called by the tests that generate a page, or
// follow one. Start with Page.
package pagetest
