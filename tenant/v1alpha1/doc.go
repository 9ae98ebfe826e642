// Package v1alpha1 holds the file formats of the group kubetenant.dev/v1alpha1: the
// [TenancyConfiguration] of a server and the [Scenario] that shows what a configuration does.
//
// Both are read by the same steps: decode strictly (unknown, duplicate and misspelt fields fail),
// default, validate. Validation is pure and reports every problem at once, each at its field.
//
// Reading a configuration opens no file it names and reaches nothing; that is done by the package
// at the root of the module when it builds a stack from one.
package v1alpha1
