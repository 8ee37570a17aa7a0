// Reads an array with zarrita: node check_served.mjs URL ARRAY. Prints the sum of its elements, or what went wrong.
import * as zarr from "zarrita";

const [url, name] = process.argv.slice(2);
try {
    const group = await zarr.open(new zarr.FetchStore(url), { kind: "group" });
    const array = await zarr.open(group.resolve(name), { kind: "array" });
    const { data, shape } = await zarr.get(array);
    let sum = 0;
    for (const element of data) sum += Number(element);
    console.log(JSON.stringify({ shape, sum }));
} catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
}
