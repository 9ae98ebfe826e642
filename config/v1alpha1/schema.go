// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import _ "embed" // for the schema

//go:embed schema.json
var schema string

// Schema returns the JSON schema of the configuration file. The schema is generated from the types
// of this package. It accepts every file that a server accepts, except one that sets a field with
// fixed values to an empty text. It also accepts some files that a server refuses: [Decode] returns
// every problem.
func Schema() []byte { return []byte(schema) }
